//! Lists of names with parameters in brackets: `movnti,write_prefetch_avx512[write_distance=4096,streams=2]`.

/// Splits a list at the commas outside brackets.
pub(crate) fn names(text: &str) -> Result<Vec<String>, String> {
    let bad = |why| {
        Err(format!("`{text}` is not a list of names: {why}; write name,name[tunable=value,tunable=value]"))
    };
    let mut list = vec![String::new()];
    let mut inside = false;
    for letter in text.chars() {
        match letter {
            '[' if inside => return bad("there is a bracket within brackets"),
            ']' if !inside => return bad("a bracket is closed that was not opened"),
            '[' | ']' => inside = !inside,
            ',' if !inside => {
                list.push(String::new());
                continue;
            }
            _ => {}
        }
        list.last_mut().expect("it starts with one").push(letter);
    }
    if inside {
        return bad("a bracket is not closed");
    }
    let list: Vec<String> = list.iter().map(|name| name.trim().to_owned()).collect();
    if list.iter().any(|name| name.is_empty() || name.starts_with('[')) {
        return bad("a name is missing");
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_brackets_do_not_split() {
        for (text, list) in [
            ("movnti", &["movnti"][..]),
            ("movnti,clzero", &["movnti", "clzero"]),
            (" movnti , clzero ", &["movnti", "clzero"]),
            ("a[x=1,y=2],b,c[z=3]", &["a[x=1,y=2]", "b", "c[z=3]"]),
            ("a[]", &["a[]"]),
        ] {
            assert_eq!(names(text).unwrap(), list, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "a name is missing"),
            ("a,,b", "a name is missing"),
            ("a,", "a name is missing"),
            ("[x=1]", "a name is missing"),
            ("a[x=1", "not closed"),
            ("ax=1]", "not opened"),
            ("a[x[y]]", "within brackets"),
        ] {
            let error = names(text).expect_err(text);
            assert!(error.contains(why) && error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
