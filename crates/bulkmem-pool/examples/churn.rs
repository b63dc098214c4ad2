//! Takes units from a running pool and drops them, and reports the rate. Fails if a unit is handed out twice, is lost, or is not
//! zero.
//!
//!     bulkmem pool serve --keep 4K,unit=64K,count=512 --rate max --quota 1G
//!     cargo run --release -p bulkmem-pool --example churn -- /run/bulkmem-pool/socket 100000
//!
//! `scripts/pool-bars.py` does both.

use std::collections::HashSet;
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use bulkmem_pool::protocol::Code;
use bulkmem_pool::{Client, ClientError, Kind, KindStatus, PageSize};

const PATIENCE: Duration = Duration::from_secs(5);
const UNIT: usize = 64 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, count] = &arguments[..] else { return Err("usage: churn SOCKET COUNT".into()) };
    let (client, count) = (Client::new(socket), count.parse::<usize>()?);
    let kind = Kind::new(PageSize::Base, UNIT as u64, None)?;
    let before = stock(&client, &kind)?;
    // The names of units, and the numbers of their files: the kernel uses none again either.
    let (mut names, mut files, mut empty) = (HashSet::new(), HashSet::new(), 0_u64);
    let mut bytes = vec![0; UNIT];
    let start = Instant::now();
    while names.len() < count {
        match client.lease(&kind, PATIENCE) {
            Ok(unit) => {
                let file = File::from(unit.file);
                let about = file.metadata()?;
                if !names.insert(unit.id) || !files.insert((about.dev(), about.ino())) {
                    return Err(format!("{} was handed out twice", unit.id).into());
                }
                file.read_exact_at(&mut bytes, 0)?;
                if bytes.iter().any(|byte| *byte != 0) {
                    return Err(format!("{} is not zero", unit.id).into());
                }
                bytes.fill(1);
                file.write_all_at(&bytes, 0)?;
            }
            Err(ClientError::Rejected(Code::Empty | Code::OverQuota)) => {
                empty += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    let lost = stock(&client, &kind)?.handed_out - before.handed_out - count as u64;
    if lost != 0 {
        return Err(format!("{lost} units were handed out and did not arrive").into());
    }
    println!("{count} units, {rate:.0} a second; {empty} requests found no ready unit");
    Ok(())
}

/// Returns the state of the pool's units of this kind.
fn stock(client: &Client, kind: &Kind) -> Result<KindStatus, Box<dyn Error>> {
    let kinds = client.status(PATIENCE)?.kinds;
    kinds.into_iter().find(|it| it.kind == *kind).ok_or_else(|| "the pool has no units of 64K".into())
}
