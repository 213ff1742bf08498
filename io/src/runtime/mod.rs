//! What the gateway needs from the machine: CPUs, rings, mailboxes, clocks.

pub mod blocks;
pub mod budget;
pub mod clock;
pub mod cpus;
pub mod descriptors;
pub mod driver;
pub mod guard;
pub mod huge_pages;
pub mod mailbox;
pub mod memory;
pub mod reachability;
pub mod seldom;
pub mod slice;
