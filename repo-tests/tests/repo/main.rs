//! What a program can check about the repository itself.

mod coverage;
mod edges;
mod house;
mod sdk;
mod vocabulary;
