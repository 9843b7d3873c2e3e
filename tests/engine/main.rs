//! Tests of the engine through its public doors.

mod diff;
mod review;
