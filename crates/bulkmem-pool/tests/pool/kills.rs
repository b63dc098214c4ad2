//! Restarts, and a daemon that is killed at each step of filling and of a lease.

use std::collections::HashSet;
use std::time::Duration;

use bulkmem_pool::{Config, Step};
use rustix::process::Signal;
use testkit::harness::Suite;

use crate::manager::Manager;
use crate::pool::{
    ALICE, BOB, POOL_USER, bytes_of, config, folder, full_of, identity, kind, lease, read_file, test_both,
    unit, write_file,
};
use crate::process::{Child, wait_until};

const UNITS: u32 = 3;

pub(crate) fn add(suite: &mut Suite) {
    test_both(suite, "a_restart_keeps_ready_units_and_leases", restart);
    suite.test("stored_files_that_are_no_ready_units_are_closed", || {
        foreign();
        Ok(())
    });
    for step in Step::ALL {
        test_both(suite, &format!("killed_at::{step:?}"), move || killed_at(step));
    }
}

/// Waits until the daemon has all its units ready, while the manager reads its messages.
fn wait_until_full(manager: &mut Manager, folder: &tempfile::TempDir) {
    wait_until("all units are ready", || {
        manager.read();
        let status = Manager::client(folder).status(Duration::from_millis(200));
        manager.read();
        status.is_ok_and(|it| it.kinds[0].ready == u64::from(UNITS))
    });
}

fn identities(manager: &Manager) -> HashSet<(u64, u64)> {
    let units = manager.store.iter().filter(|(name, _)| name.len() == 32);
    units.map(|(_, file)| identity(file)).collect()
}

fn restart() {
    let folder = folder(POOL_USER);
    let mut manager = Manager::new(&folder);
    let client = Manager::client(&folder);
    let mut daemon = manager.start(config(&folder, UNITS));
    wait_until_full(&mut manager, &folder);
    let mut tenant = Child::of_user(ALICE, |channel| {
        let unit = lease(&client);
        channel.send(identity(&unit.file));
        channel.receive::<bool>();
        drop(unit);
        channel.send(true);
        channel.receive::<bool>();
    });
    let leased: (u64, u64) = tenant.channel.receive();
    wait_until_full(&mut manager, &folder);
    let ready = identities(&manager);
    assert_eq!((ready.len(), ready.contains(&leased)), (UNITS as usize, false));

    daemon.kill();
    // Between the two daemons, connections wait in the socket, and the manager has the units.
    let mut second = manager.start(config(&folder, UNITS));
    wait_until_full(&mut manager, &folder);
    assert_eq!(identities(&manager), ready, "the second daemon has the units of the first");
    let status = client.status(Duration::from_secs(5)).unwrap();
    assert_eq!((status.users.len(), status.users[0].user, status.filled_bytes), (1, ALICE, 0));

    // The watches survive too: the tenant is done while no daemon runs.
    second.kill();
    tenant.channel.send(true);
    tenant.channel.receive::<bool>();
    let _third = manager.start(config(&folder, UNITS));
    wait_until_full(&mut manager, &folder);
    assert_eq!(client.status(Duration::from_secs(5)).unwrap().users, []);
    assert_eq!(manager.ready, 3);
    tenant.channel.send(true);
}

/// Only a unit with a ready record, without a lease, and in its original state becomes ready again.
fn foreign() {
    let folder = folder(POOL_USER);
    let mut manager = Manager::new(&folder);
    let mut daemon = manager.start(config(&folder, UNITS));
    wait_until_full(&mut manager, &folder);
    daemon.kill();
    let run = folder.path().join("run");
    let names: Vec<String> =
        manager.store.iter().map(|(name, _)| name.clone()).filter(|it| it.len() == 32).collect();
    let before = identities(&manager);
    // One unit has a lease, one has no record, and one was shortened.
    let lease = format!(
        r#"{{"user":{ALICE},"process":1,"started":0,"kind":{},"watch":9999}}"#,
        serde_json::to_string(&kind()).unwrap(),
    );
    std::fs::write(run.join("leases").join(&names[0]), lease).unwrap();
    std::fs::remove_file(run.join("ready").join(&names[1])).unwrap();
    let shortened = manager.store.iter().find(|(name, _)| *name == names[2]).unwrap();
    rustix::fs::ftruncate(&shortened.1, 4096).unwrap();
    let _second = manager.start(config(&folder, UNITS));
    wait_until_full(&mut manager, &folder);
    let after = identities(&manager);
    assert_eq!((after.len(), after.intersection(&before).count()), (UNITS as usize, 0), "all are new");
}

fn killed_at(step: Step) {
    let folder = folder(POOL_USER);
    let mut manager = Manager::new(&folder);
    let client = Manager::client(&folder);
    let with = |kill_at| {
        let mut config: Config = config(&folder, UNITS);
        config.hooks.kill_at = kill_at;
        config
    };
    let filling = [Step::Created, Step::Filled, Step::ReadyRecorded, Step::Stored].contains(&step);
    if !filling {
        // The units are ready when the daemon that will be killed starts.
        let mut first = manager.start(with(None));
        wait_until_full(&mut manager, &folder);
        first.kill();
        manager.read();
    }
    let mut daemon = manager.start(with(Some(step)));
    let mut alice = Child::of_user(ALICE, |channel| {
        let found = if filling { None } else { client.lease(&kind(), Duration::from_secs(5)).ok() };
        if let Some(unit) = &found {
            assert!(write_file(&unit.file, &full_of(b"a secret of Ali.")));
        }
        channel.send(found.as_ref().map(|unit| identity(&unit.file)));
        channel.receive::<bool>();
    });
    wait_until("the daemon is killed", || {
        manager.read();
        daemon.has_ended()
    });
    assert_eq!(daemon.wait().terminating_signal(), Some(Signal::KILL.as_raw()));
    let alices: Option<(u64, u64)> = alice.channel.receive();
    assert_eq!(alices.is_some(), [Step::Sent, Step::Closed].contains(&step));

    manager.read();
    let _second = manager.start(with(None));
    wait_until_full(&mut manager, &folder);
    let users: Vec<u32> =
        client.status(Duration::from_secs(5)).unwrap().users.iter().map(|it| it.user).collect();
    assert_eq!(
        users,
        alices.map(|_| ALICE).into_iter().collect::<Vec<_>>(),
        "a lease exists iff its unit does"
    );

    // All that the pool has goes to another tenant. None of it is Alice's, and none contains her secret.
    let mut bob = Child::of_user(BOB, |channel| {
        let units: Vec<_> =
            (0..UNITS).map(|_| client.lease(&kind(), Duration::from_secs(5)).unwrap()).collect();
        for lease in &units {
            let bytes = read_file(&lease.file);
            assert_eq!((bytes_of(&[0; 16], &bytes), bytes.len() as u64), (bytes.len(), unit()));
        }
        channel.send(units.iter().map(|unit| identity(&unit.file)).collect::<Vec<_>>());
        channel.receive::<bool>();
    });
    let bobs: Vec<(u64, u64)> = bob.channel.receive();
    let all: HashSet<_> = bobs.iter().copied().chain(alices).collect();
    assert_eq!(all.len(), bobs.len() + usize::from(alices.is_some()), "a unit was handed out twice");
    alice.kill();
    bob.kill();
    wait_until_full(&mut manager, &folder);
    wait_until("all leases have ended", || {
        manager.read();
        client.status(Duration::from_secs(5)).unwrap().users.is_empty()
    });
    manager.read();
    let count = |name: &str| std::fs::read_dir(folder.path().join("run").join(name)).unwrap().count();
    assert_eq!((count("leases"), count("ready"), manager.units()), (0, UNITS as usize, UNITS as usize));
}
