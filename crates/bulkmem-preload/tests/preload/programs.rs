//! Debian's programs, unmodified, with output that is the same with the library.

use std::process::Command;

use tempfile::TempDir;

use crate::policy::{NON_TEMPORAL, with_looks};
use crate::toolchain::{library, output};

/// Runs a shell script in an empty folder without the library, and with it by two policies. The output, messages and status
/// must be the same. Skips it if a program is not installed.
#[track_caller]
fn same(program: &str, package: &str, script: &str) {
    if Command::new(program).arg("--version").output().is_err() {
        println!(
            "skipped: {program} with the preloaded library: not installed; remedy: apt-get install {package}"
        );
        return;
    }
    let run = |variables: &[(&str, &str)]| {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new("sh");
        command
            .args(["-euc", script])
            .current_dir(folder.path())
            .env("LC_ALL", "C")
            .env("HOME", folder.path());
        output(command.envs(variables.iter().copied()))
    };
    let library = library().to_str().unwrap();
    let looks = with_looks().to_str().unwrap();
    let alone = run(&[]);
    assert!(alone.status.success() && !alone.stdout.is_empty(), "{program}: {alone:?}");
    assert_eq!(run(&[("LD_PRELOAD", library), ("BULKMEM_METHOD", NON_TEMPORAL)]), alone, "{program}");
    assert_eq!(run(&[("LD_PRELOAD", library), ("BULKMEM_PROFILE", looks)]), alone, "{program}");
}

#[test]
fn perl_prints_the_same() {
    same(
        "perl",
        "perl",
        r#"perl -MDigest::MD5=md5_hex -MStorable=freeze,thaw -e '
            my $text = join ",", map { $_ * 7919 % 1000003 } 1 .. 200000;
            print md5_hex($text), "\n";
            my $long = $text x 8;
            substr($long, 3_000_000, 100_000) = "x" x 700_000;
            print length $long, " ", md5_hex($long), "\n";
            my @sorted = sort { $a <=> $b } split /,/, $text;
            print md5_hex("@sorted"), "\n";
            my $copy = thaw freeze { text => $long, list => \@sorted };
            print md5_hex($copy->{text}), " ", scalar @{$copy->{list}}, "\n";
            $long =~ s/1(\d)/$1-/g;
            print md5_hex(reverse $long), "\n"'"#,
    );
}

#[test]
fn git_prints_the_same() {
    same(
        "git",
        "git",
        r#"export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
        git -c init.defaultBranch=main init -q .
        git config user.name test; git config user.email test@example.org; git config pack.threads 1
        for round in 1 2 3; do
            seq $round 7 2000000 > large; seq $round 3 90000 > small; head -c 3000000 /dev/zero > "zeros$round"
            git add . && git commit -q -m "$round"
        done
        git repack -q -a -d -f --depth=10 --window=5
        git fsck --full --strict
        git log --stat --format=%H
        git diff HEAD~2 | git patch-id
        git archive HEAD | sha1sum
        sha1sum .git/objects/pack/*.pack
        git clone -q . copy && git -C copy rev-parse HEAD && sha1sum copy/large"#,
    );
}

#[test]
fn sqlite_prints_the_same() {
    same(
        "sqlite3",
        "sqlite3",
        r#"sqlite3 file "
            PRAGMA page_size = 65536; PRAGMA cache_size = 100;
            CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c BLOB);
            WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
                INSERT INTO t SELECT i, printf('%020d', i * 7919 % 1000003), zeroblob(i % 60) FROM n;
            INSERT INTO t SELECT 100000 + a, hex(zeroblob(100000 + a)), zeroblob(1000000) FROM t WHERE a <= 8;
            CREATE INDEX i ON t (b);
            SELECT count(*), sum(length(b)), sum(length(c)), min(b), max(b) FROM t;
            SELECT a, substr(b, 1, 20) FROM t ORDER BY b DESC LIMIT 3;
            SELECT length(group_concat(b)) FROM t;
            VACUUM; PRAGMA integrity_check;"
        sqlite3 file .dump | sha1sum"#,
    );
}

#[test]
fn python_prints_the_same() {
    same(
        "/usr/bin/python3",
        "python3",
        r#"/usr/bin/python3 -c '
import array, hashlib, json, pickle, zlib
def show(data): print(len(data), hashlib.sha256(data).hexdigest())
data = bytearray(range(256)) * 20000
show(data)
data[100000:2000000] = bytes(1500000)
show(data)
data += memoryview(data)[:3000000].tobytes() * 2
show(data)
numbers = array.array("q", (i * 7919 % 1000003 for i in range(300000)))
show(numbers.tobytes())
show(json.dumps(sorted(numbers)).encode())
show(zlib.decompress(zlib.compress(bytes(data), 1)))
show(pickle.dumps([bytes(data), numbers.tolist()]))
del data[5:1000005]
show(data)
'"#,
    );
}
