//! Parsers of kinds of memory.

use bulkmem_pool::{Kind, PageSize, Supply};

use crate::parsers;

/// Parses a page size: 4K, 2M or 1G.
pub(super) fn page_size(text: &str) -> Result<PageSize, String> {
    let page = parsers::size(text).ok().and_then(PageSize::of_bytes);
    page.ok_or_else(|| format!("`{text}` is not a page size of a pool: write 4K, 2M or 1G"))
}

/// Parses a supply: `2M,unit=1G,count=4,node=0`.
pub(super) fn supply(text: &str) -> Result<Supply, String> {
    let bad = |why: &str| {
        format!("`{text}`: {why}; write PAGE,unit=SIZE[,count=N][,node=N], such as 2M,unit=1G,count=4")
    };
    let mut fields = text.split(',');
    let page = page_size(fields.next().unwrap_or_default()).map_err(|why| bad(&why))?;
    let (mut unit, mut count, mut node) = (None, None, None);
    for field in fields {
        let number =
            |value: &str| value.parse::<u32>().map_err(|_| bad(&format!("`{value}` is not a number")));
        let repeated = match field.split_once('=') {
            Some(("unit", value)) => unit.replace(parsers::size(value)?).is_some(),
            Some(("count", value)) => count.replace(number(value)?).is_some(),
            Some(("node", value)) => node.replace(number(value)?).is_some(),
            _ => return Err(bad(&format!("`{field}` is not a field"))),
        };
        if repeated {
            return Err(bad(&format!("`{field}` repeats a field")));
        }
    }
    let unit = unit.ok_or_else(|| bad("the length of a unit is missing"))?;
    let count = count.unwrap_or(1);
    if count == 0 {
        return Err(bad("no unit is kept"));
    }
    let kind = Kind::new(page, unit, node).map_err(|error| bad(&error.to_string()))?;
    Ok(Supply { kind, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supply_has_a_page_size_a_unit_a_count_and_a_node() {
        let kind = Kind { page: PageSize::Huge2M, unit: 1 << 30, node: Some(1) };
        assert_eq!(supply("2M,unit=1G,count=4,node=1"), Ok(Supply { kind, count: 4 }));
        let kind = Kind { page: PageSize::Base, unit: 8192, node: None };
        assert_eq!(supply("4K,unit=8K"), Ok(Supply { kind, count: 1 }));
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "page size"),
            ("3M,unit=1G", "page size"),
            ("2M", "length of a unit is missing"),
            ("2M,unit=3M", "whole number of 2M pages"),
            ("2M,unit=x", "not a size"),
            ("2M,unit=2M,unit=4M", "repeats"),
            ("2M,unit=2M,count=0", "no unit is kept"),
            ("2M,unit=2M,count=-1", "`-1` is not a number"),
            ("2M,unit=2M,node=1024", "no NUMA node 1024"),
            ("2M,unit=2M,nodes=1", "`nodes=1` is not a field"),
        ] {
            let error = supply(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }
}
