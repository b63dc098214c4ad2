//! Takes units from a running pool and drops them, and reports the rate. Fails if a unit is handed out twice, or is not zero.
//!
//!     bulkmem pool serve --keep 4K,unit=64K,count=512 --rate max --quota 1G
//!     cargo run --release -p bulkmem-pool --example churn -- /run/bulkmem-pool/socket 100000

use std::collections::HashSet;
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use bulkmem_pool::protocol::Code;
use bulkmem_pool::{Client, ClientError, Kind, PageSize};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, count] = &arguments[..] else { return Err("usage: churn SOCKET COUNT".into()) };
    let (client, count) = (Client::new(socket), count.parse::<usize>()?);
    let kind = Kind::new(PageSize::Base, 64 << 10, None)?;
    let (mut ids, mut empty) = (HashSet::new(), 0_u64);
    let start = Instant::now();
    while ids.len() < count {
        match client.lease(&kind, Duration::from_secs(5)) {
            Ok(unit) => {
                if !ids.insert(unit.id) {
                    return Err(format!("{} was handed out twice", unit.id).into());
                }
                let file = File::from(unit.file);
                let mut first = [0; 4096];
                file.read_exact_at(&mut first, 0)?;
                if first != [0; 4096] {
                    return Err(format!("{} is not zero", unit.id).into());
                }
                file.write_all_at(&[1; 4096], 0)?;
            }
            Err(ClientError::Rejected(Code::Empty | Code::OverQuota)) => {
                empty += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("{count} units, {rate:.0} a second; {empty} requests found no ready unit");
    Ok(())
}
