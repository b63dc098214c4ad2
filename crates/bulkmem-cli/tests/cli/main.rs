//! The command from outside: arguments, output, files and exit codes.

mod bench_all;
mod bench_applications;
mod bench_chunks;
mod bench_corun;
mod bench_fork;
mod bench_iops;
mod bench_persist;
mod bench_pollution;
mod bench_reuse;
mod bench_sizes;
mod bench_threshold;
mod bench_vm;
mod calibrate;
mod choice;
mod compare;
mod explain;
mod foreign;
mod home;
mod info;
mod kmod;
mod limits;
mod methods;
mod outputs;
mod pages;
mod planted;
mod recalibrate;
mod report;
mod report_opening;
mod reproduce;
mod run;
#[cfg(target_arch = "x86_64")]
mod run_histogram;
mod saving;
mod schema;
mod tunables;
mod usage;
