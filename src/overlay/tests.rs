mod by_node;
mod cases;
mod fixture;
mod random;
