//! Changes that are hard to see: nothing of them is lost and nothing hidden, from the run over the
//! listing, the choice by path and the commit to the undo.

mod attributes;
mod full;
mod many;
mod sparse;
