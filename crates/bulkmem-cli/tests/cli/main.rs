//! The command from outside: what it takes, prints, writes and exits with.

mod bench_all;
mod bench_chunks;
mod bench_corun;
mod bench_fork;
mod bench_iops;
mod bench_persist;
mod bench_pollution;
mod bench_reuse;
mod bench_sizes;
mod bench_vm;
mod calibrate;
mod choice;
mod compare;
mod explain;
mod home;
mod info;
mod kmod;
mod limits;
mod methods;
mod pages;
mod planted;
mod report;
mod reproduce;
mod saving;
mod schema;
mod usage;
