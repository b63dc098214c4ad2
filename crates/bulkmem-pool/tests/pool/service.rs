//! Leases, quotas, limits and the state, as tenants see them.

use std::collections::HashSet;
use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bulkmem_pool::protocol::Code;
use bulkmem_pool::{Client, ClientError, Config, Kind, PageSize, Source, Supply, memory};
use rustix::fs::fstat;
use rustix::io::FdFlags;
use testkit::harness::Suite;

use crate::pool::{
    ALICE, BOB, LONG, POOL_USER, Pool, UNIT, bytes_of, full_of, identity, kind, lease, read_file, test_both,
    unit, write_file,
};
use crate::process::{Child, wait_until};

pub(crate) fn add(suite: &mut Suite) {
    test_both(suite, "a_unit_is_zeroed_filled_sealed_and_the_tenants", a_unit);
    test_both(suite, "a_lease_ends_with_its_memory", ends);
    let mut test = |name, run: fn()| {
        suite.test(name, move || {
            run();
            Ok(())
        })
    };
    test("quotas_limit_each_user", quota);
    test("requests_without_a_unit_have_a_reason", reasons);
    test("users_see_only_their_own_leases", privacy);
    test("a_tenant_has_its_own_socket", own_socket);
    test("without_a_daemon_memory_is_fresh", fresh);
    test("a_daemon_that_hangs_is_left_after_the_limit", hangs);
    test("churn_loses_and_repeats_no_unit", churn);
    test("the_daemon_needs_little_memory", little);
    test("the_daemon_can_make_only_its_system_calls", seccomp);
    test("others_get_memory_first", pressure);
    test("a_kind_without_memory_does_not_hold_up_others", unavailable);
}

fn a_unit() {
    let pool = Pool::start(2, |_| ());
    let mut tenant = Child::of_user(ALICE, |channel| {
        let lease = lease(&pool.client);
        let about = fstat(&lease.file).unwrap();
        assert_eq!((about.st_uid, about.st_gid, about.st_mode & 0o7777), (ALICE, ALICE, 0o600));
        let length = i64::try_from(unit()).unwrap();
        assert_eq!((about.st_blocks * 512, about.st_size), (length, length), "all pages are allocated");
        assert_eq!(about.st_blksize, i64::try_from(kind().page.bytes()).unwrap());
        let bytes = read_file(&lease.file);
        assert_eq!((bytes_of(&[0; 16], &bytes), bytes.len() as u64), (bytes.len(), unit()));
        assert!(rustix::io::fcntl_getfd(&lease.file).unwrap().contains(FdFlags::CLOEXEC));
        assert!(write_file(&lease.file, b"mine"));
        channel.send(lease.id.to_string());
        channel.receive::<bool>();
    });
    let id: String = tenant.channel.receive();
    assert!(pool.folder.path().join("run/leases").join(id).exists());
    assert_eq!(pool.status().kinds[0].handed_out, 1);
    tenant.channel.send(true);
    assert!(tenant.wait().exit_status() == Some(0));
}

fn ends() {
    let pool = Pool::start(2, |_| ());
    let mut tenant = Child::of_user(ALICE, |channel| {
        let lease = lease(&pool.client);
        let mapping = crate::pool::Mapping::of(&lease.file).unwrap();
        drop(lease);
        channel.send(true);
        channel.receive::<bool>();
        mapping.unmap();
        channel.send(true);
        channel.receive::<bool>();
    });
    tenant.channel.receive::<bool>();
    pool.wait_until_full();
    assert_eq!((pool.status().users.len(), pool.records("leases")), (1, 1), "a mapping is left");
    tenant.channel.send(true);
    tenant.channel.receive::<bool>();
    wait_until("the lease has ended", || pool.status().users.is_empty());
    assert_eq!((pool.records("leases"), pool.records("ready")), (0, 2));
    tenant.channel.send(true);
}

fn quota() {
    let pool = Pool::start(3, |config| {
        config.quota = Some(2 * UNIT);
        config.user_quotas.insert(BOB, UNIT);
    });
    for (user, units) in [(ALICE, 2), (BOB, 1)] {
        let mut tenant = Child::of_user(user, |_| {
            let mut held: Vec<_> = (0..units).map(|_| lease(&pool.client)).collect();
            let error = pool.client.lease(&kind(), LONG).unwrap_err();
            assert!(matches!(error, ClientError::Rejected(Code::OverQuota)), "{error}");
            held.pop();
            // The end of the memory gives the quota back.
            wait_until("the quota is free", || match pool.client.lease(&kind(), LONG) {
                Ok(lease) => {
                    held.push(lease);
                    true
                }
                Err(ClientError::Rejected(Code::OverQuota | Code::Empty)) => false,
                Err(error) => panic!("{error}"),
            });
        });
        assert_eq!(tenant.wait().exit_status(), Some(0));
    }
}

fn reasons() {
    let pool = Pool::start(1, |config| config.rate = Some(1));
    // Filled without a limit when it started; at a byte a second, there is no second unit during the test.
    let rejected = |kind: &Kind| match pool.client.lease(kind, LONG) {
        Err(ClientError::Rejected(code)) => code,
        other => panic!("{other:?}"),
    };
    for other in [
        Kind::new(PageSize::Base, 2 * UNIT, None).unwrap(),
        Kind::new(PageSize::Huge2M, 2 << 20, None).unwrap(),
        Kind::new(PageSize::Base, UNIT, Some(0)).unwrap(),
    ] {
        assert_eq!(rejected(&other), Code::NoSuchKind);
    }
    let only = pool.client.lease(&kind(), LONG).unwrap();
    drop(only);
    wait_until("the lease has ended", || pool.status().users.is_empty());
    assert_eq!(rejected(&kind()), Code::Empty);
    assert_eq!((pool.status().kinds[0].empty, pool.status().rejected), (1, 4));
}

fn privacy() {
    let pool = Pool::start(2, |_| ());
    let _held = lease(&pool.client);
    let mut tenant = Child::of_user(ALICE, |_| {
        let _own = lease(&pool.client);
        let users = pool.status().users;
        assert_eq!(
            users.iter().map(|it| (it.user, it.leases, it.bytes)).collect::<Vec<_>>(),
            [(ALICE, 1, UNIT)]
        );
    });
    assert_eq!(tenant.wait().exit_status(), Some(0));
    let mut daemons =
        Child::of_user(POOL_USER, |_| assert!(pool.status().users.iter().any(|it| it.user == 0)));
    assert_eq!(daemons.wait().exit_status(), Some(0));
}

fn own_socket() {
    let pool = Pool::start(2, |config| {
        config.tenants = vec![ALICE];
        config.socket_mode = 0o600;
    });
    let run = pool.folder.path().join("run");
    for (user, allowed) in [(ALICE, true), (BOB, false)] {
        let mut tenant = Child::of_user(user, |_| {
            let found = Client::in_folder(&run).lease(&kind(), LONG);
            assert_eq!(found.is_ok(), allowed, "{found:?}");
            let foreign = Client::new(run.join(format!("{ALICE}.socket"))).lease(&kind(), LONG);
            assert_eq!(foreign.is_ok(), allowed, "{foreign:?}");
        });
        assert_eq!(tenant.wait().exit_status(), Some(0));
    }
}

fn fresh() {
    let client = Client::new("/nonexistent/socket");
    let found = memory(&client, &kind(), LONG).unwrap();
    assert!(matches!(found.source, Source::Fresh(ClientError::Connect { .. })), "{:?}", found.source);
    assert_eq!((fstat(&found.file).unwrap().st_size, fstat(&found.file).unwrap().st_blocks), (64 << 10, 0));
    // No machine has 128 TiB of huge pages; memory files of base pages may be larger than the machine.
    let huge = Kind::new(PageSize::Huge2M, 1 << 46, None).unwrap();
    let found = memory(&client, &huge, LONG).unwrap();
    assert!(matches!(found.source, Source::FreshBase(..)), "{:?}", found.source);
    assert_eq!(fstat(&found.file).unwrap().st_size, 1 << 46);
    let nowhere = Kind::new(PageSize::Base, UNIT, Some(1023)).unwrap();
    assert!(memory(&client, &nowhere, LONG).is_err());
}

fn hangs() {
    use rustix::process::{Signal, kill_process};
    let pool = Pool::start(1, |_| ());
    kill_process(pool.daemon.pid(), Signal::STOP).unwrap();
    // Until the backlog is full, requests time out; afterwards, connecting fails immediately.
    let mut reasons = HashSet::new();
    for _ in 0..200 {
        match memory(&pool.client, &kind(), Duration::from_millis(1)).unwrap().source {
            Source::Fresh(ClientError::Timeout(_)) => reasons.insert("timeout"),
            Source::Fresh(ClientError::Connect { .. }) => reasons.insert("connect"),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    kill_process(pool.daemon.pid(), Signal::CONT).unwrap();
    // None of the clients waited for its unit: no unit is lost, and none is leased.
    pool.wait_until_full();
    wait_until("all leases have ended", || pool.status().users.is_empty());
}

fn churn() {
    const UNITS: usize = 2000;
    let pool = Pool::start(32, |config| config.quota = Some(1 << 30));
    let mut tenant = Child::of_user(ALICE, |_| {
        let mut held = VecDeque::new();
        let mut ids = HashSet::new();
        for _ in 0..UNITS {
            let unit = lease(&pool.client);
            assert!(ids.insert(unit.id), "a unit was handed out twice");
            assert!(
                held.iter().all(|other: &bulkmem_pool::Lease| identity(&other.file) != identity(&unit.file))
            );
            assert_eq!(bytes_of(&[0; 16], &read_file(&unit.file)), 64 << 10, "a unit is not zero");
            rustix::io::pwrite(&unit.file, &full_of(b"a secret of Ali."), 0).unwrap();
            held.push_back(unit);
            if held.len() > 40 {
                held.pop_front();
            }
        }
    });
    assert_eq!(tenant.wait().exit_status(), Some(0));
    pool.wait_until_full();
    wait_until("all leases have ended", || pool.status().users.is_empty());
    assert_eq!(pool.status().kinds[0].handed_out, UNITS as u64);
    assert_eq!((pool.records("leases"), pool.records("ready")), (0, 32));
}

fn little() {
    const UNITS: u32 = 3000;
    let smallest = Kind::new(PageSize::Base, 4096, None).unwrap();
    let pool = Pool::start(UNITS, |config| config.supplies[0].kind = smallest);
    let field = |file: &str, name: &str| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", pool.daemon.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let private = field("smaps_rollup", "Private_Clean:") + field("smaps_rollup", "Private_Dirty:");
    let kib = private + field("status", "VmPTE:");
    assert!(kib < 20 << 10, "{kib} KiB for {UNITS} units");
}

fn seccomp() {
    let pool = Pool::start(1, |_| ());
    let status = std::fs::read_to_string(format!("/proc/{}/status", pool.daemon.pid())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim().to_owned()).unwrap_or_default()
    };
    assert_eq!((field("Seccomp:"), field("NoNewPrivs:")), ("2".to_owned(), "1".to_owned()));
    assert_eq!(field("CapEff:"), "0000000000000001", "only CAP_CHOWN");
    assert_eq!((field("CapPrm:"), field("Uid:")), (field("CapEff:"), ["20000"; 4].join("\t")));
}

fn pressure() {
    // A root folder whose files the test writes.
    let files = tempfile::tempdir().unwrap();
    let root = files.path().to_owned();
    let write = |available: u64, stalled: u64| {
        let meminfo = format!("MemTotal: 1000000 kB\nMemAvailable: {available} kB\n");
        for (name, text) in [
            ("meminfo", meminfo),
            ("pressure/memory", format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled}\n")),
        ] {
            let path = root.join("proc").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path.with_extension("new"), text).unwrap();
            std::fs::rename(path.with_extension("new"), path).unwrap();
        }
    };
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(files.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    write(500_000, 0);
    let pool = Pool::start(3, |config| config.root.clone_from(&root));
    // Tasks wait: one unit is freed for each tick in which they do.
    write(500_000, 3_600_000_000);
    wait_until("a unit is freed", || pool.status().kinds[0].released == 1);
    let status = pool.status();
    assert!(status.suspended && status.kinds[0].ready == 2, "{status:?}");
    // Less is available than the share of others: all are freed.
    write(1000, 3_600_000_000);
    wait_until("all units are freed", || pool.status().kinds[0].ready == 0);
    assert_eq!((pool.status().kinds[0].released, pool.records("ready")), (3, 0));
    write(500_000, 3_600_000_000);
    pool.wait_until_full();
}

fn unavailable() {
    // A root folder whose kernel has no huge pages.
    let files = tempfile::tempdir().unwrap();
    std::fs::set_permissions(files.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(files.path().join("proc")).unwrap();
    let meminfo = "MemTotal: 1000000 kB\nMemAvailable: 500000 kB\n";
    std::fs::write(files.path().join("proc/meminfo"), meminfo).unwrap();
    let huge = Kind::new(PageSize::Huge1G, 1 << 30, None).unwrap();
    let change = |config: &mut Config| {
        config.root = files.path().to_owned();
        config.supplies.insert(0, Supply { kind: huge, count: 1 });
    };
    let pool = Pool::spawn(POOL_USER, 3, change, || ());
    wait_until("the other units are ready", || {
        pool.client.status(LONG).is_ok_and(|status| status.kinds[1].ready == 3)
    });
    assert!(pool.status().suspended);
    assert!(matches!(pool.client.lease(&huge, LONG), Err(ClientError::Rejected(Code::Empty))));
}
