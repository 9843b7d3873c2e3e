//! What programs do to files, by both drivers, as root and as an ordinary user, beside the same
//! done to a plain directory. Where a driver is known to differ, exactly that difference is
//! demanded, so that it cannot change without being noticed.

mod attributes;
mod directories;
mod inodes;
mod locks;
mod names;
mod open_flags;
mod places;
mod projects;
mod special;
