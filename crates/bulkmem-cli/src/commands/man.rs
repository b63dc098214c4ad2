//! `bulkmem man`.

use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_mangen::Man;

use crate::failure::{Exit, Failure, Outcome};
use crate::output;
use crate::plain::plain;

/// Print the manual page, or write those of all commands to a directory
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write a page for each command to this directory, which is created if it does not exist
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &ManArgs, command: Command) -> Outcome {
    let Some(directory) = &args.output else {
        output::print_raw(&page(&Man::new(command))?)?;
        return Ok(Exit::Done);
    };
    let mut command = command.disable_help_subcommand(true);
    command.build();
    for (name, page) in pages(&command)? {
        let path = directory.join(name);
        bulkmem_output::write(&path, &page).map_err(|error| {
            Failure::new(format!("cannot write the manual page {}: {error}", path.display()))
                .help("name a directory you may write to: bulkmem man --output DIR")
        })?;
    }
    output::print(&format!("Wrote the manual pages to {}\n", plain(&directory.display().to_string())))?;
    Ok(Exit::Done)
}

/// Returns file names and manual pages of a command and all its subcommands.
fn pages(command: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        found.extend(pages(below)?);
    }
    let man = Man::new(command.clone());
    found.push((man.get_filename(), page(&man)?));
    Ok(found)
}

fn page(man: &Man) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render(&mut page)?;
    Ok(page)
}
