//! The workstation: renders a session's state and turns keys into actions. Knows the engine's
//! protocol and state, never its insides; touches the file system only in `cli` and `theme`.
#![forbid(unsafe_code)]

pub mod action;
pub mod agent;
pub mod app;
pub mod cli;
pub mod effect;

pub mod input;
pub mod keymap;
pub mod model;
pub mod terminal;
pub mod theme;
pub mod update;
pub mod view;
pub mod widget;
