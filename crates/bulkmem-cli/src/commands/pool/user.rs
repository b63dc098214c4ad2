//! Users by name or number.

use std::fs;

/// A user and the main group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) user: u32,
    pub(super) group: u32,
}

/// Parses a number, or a name of /etc/passwd.
pub(super) fn user(text: &str) -> Result<User, String> {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    find(text, &users).ok_or_else(|| {
        format!("there is no user `{text}` in /etc/passwd: give a name from there, or a number")
    })
}

fn find(text: &str, users: &str) -> Option<User> {
    let mut known = users.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let user = fields.get(2)?.parse().ok()?;
        Some((fields[0], User { user, group: fields.get(3)?.parse().ok()? }))
    });
    match text.parse() {
        Ok(number) => {
            let known = known.find(|(_, user)| user.user == number).map(|(_, user)| user);
            Some(known.unwrap_or(User { user: number, group: number }))
        }
        Err(_) => known.find(|(name, _)| *name == text).map(|(_, user)| user),
    }
}

/// Parses a quota of a user: `USER=SIZE`.
pub(super) fn quota(text: &str) -> Result<(u32, u64), String> {
    let (name, size) =
        text.split_once('=').ok_or_else(|| format!("`{text}` is not a quota: write USER=SIZE"))?;
    Ok((user(name)?.user, crate::parsers::size(size)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\npool:x:105:106::/:/bin/false\n";
        assert_eq!(find("pool", users), Some(User { user: 105, group: 106 }));
        assert_eq!(find("105", users), Some(User { user: 105, group: 106 }));
        assert_eq!(find("20001", users), Some(User { user: 20001, group: 20001 }));
        assert_eq!(find("nobody-here", users), None);
        assert_eq!(quota("20001=1G"), Ok((20001, 1 << 30)));
        assert!(quota("20001").unwrap_err().contains("USER=SIZE"));
    }
}
