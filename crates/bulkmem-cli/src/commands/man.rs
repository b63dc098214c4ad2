//! `bulkmem man`.

use std::fs;

use clap::CommandFactory;

use super::Outcome;
use crate::args::{Cli, ManArgs};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::plain::plain;

pub(super) fn run(args: &ManArgs) -> Outcome {
    let command = Cli::command();
    let Some(directory) = &args.output else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        output::print_raw(&page)?;
        return Ok(Exit::Done);
    };
    let cannot = |error: std::io::Error| {
        Failure::new(format!("cannot write the manual pages to {}: {error}", directory.display()))
            .help("give a directory you may write to: bulkmem man --output DIR")
    };
    fs::create_dir_all(directory).map_err(cannot)?;
    clap_mangen::generate_to(command, directory).map_err(cannot)?;
    output::print(&format!("Wrote the manual pages to {}\n", plain(&directory.display().to_string())))?;
    Ok(Exit::Done)
}
