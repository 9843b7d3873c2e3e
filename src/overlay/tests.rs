mod cases;
mod fixture;
mod random;
