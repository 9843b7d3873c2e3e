//! Widgets: how lines of bytes and frames are put on the screen, whatever they are about. Owns
//! cells; knows no session.

pub mod line;
pub mod pane;
