//! The guest protocol: what the host and the first process of the guest say to each other.
