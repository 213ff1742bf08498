//! What the gateway needs from the machine: CPUs, rings, mailboxes, clocks.

pub mod budget;
pub mod clock;
pub mod cpus;
pub mod descriptors;
pub mod driver;
pub mod guard;
pub mod mailbox;
pub mod memory;
pub mod reachability;
pub mod slice;
