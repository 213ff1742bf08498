//! What the program reads before it does anything. A library, so that tests beside the program and
//! the fuzz targets reach it.

pub mod cli;
