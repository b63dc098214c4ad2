//! The executable of this process: addresses of its code, and names of its functions.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind, SymbolKind};

/// The executable of this process.
#[derive(Debug)]
pub struct Image {
    code: Vec<Range<u64>>,
    /// Sections of data.
    data: Vec<Range<u64>>,
    /// Functions by address.
    functions: BTreeMap<u64, String>,
    /// Names of functions of other libraries, by the address of the slot that holds the function's address.
    imports: BTreeMap<u64, String>,
}

impl Image {
    /// Returns the executable of this process, which is read once.
    ///
    /// # Errors
    /// If it cannot be read or has no symbols (build the tests without `strip`).
    pub fn current() -> Result<&'static Image, String> {
        static IMAGE: OnceLock<Result<Image, String>> = OnceLock::new();
        IMAGE.get_or_init(Image::read).as_ref().map_err(Clone::clone)
    }

    fn read() -> Result<Image, String> {
        let bytes =
            std::fs::read("/proc/self/exe").map_err(|error| format!("reading /proc/self/exe: {error}"))?;
        let file =
            object::File::parse(bytes.as_slice()).map_err(|error| format!("/proc/self/exe: {error}"))?;
        // SAFETY: getauxval has no precondition.
        let bias = unsafe { libc::getauxval(libc::AT_ENTRY) }.wrapping_sub(file.entry());

        let sections = |kinds: &[SectionKind]| {
            let wanted = file.sections().filter(|section| kinds.contains(&section.kind()));
            wanted
                .map(|section| section.address() + bias..section.address() + bias + section.size())
                .filter(|section| section.start > bias)
                .collect::<Vec<_>>()
        };
        let code = sections(&[SectionKind::Text]);
        let data = sections(&[SectionKind::Data, SectionKind::ReadOnlyData]);
        let functions: BTreeMap<_, _> = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .filter_map(|symbol| Some((symbol.address() + bias, symbol.name().ok()?.to_owned())))
            .collect();
        if functions.is_empty() {
            return Err("the test executable has no symbols: build it without `strip`".to_owned());
        }
        let dynamic = file.dynamic_symbol_table();
        let imports = file
            .dynamic_relocations()
            .into_iter()
            .flatten()
            .filter_map(|(slot, relocation)| {
                let RelocationTarget::Symbol(index) = relocation.target() else { return None };
                use object::ObjectSymbolTable;
                let symbol = dynamic.as_ref()?.symbol_by_index(index).ok()?;
                Some((slot + bias, symbol.name().ok()?.to_owned()))
            })
            .collect();
        Ok(Image { code, data, functions, imports })
    }

    /// True if the address is in the code of this executable.
    pub fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|code| code.contains(&address))
    }

    /// Returns the name of the last function that starts at or before an address; "?" if there is none.
    pub fn function(&self, address: u64) -> String {
        let found = self.functions.range(..=address).next_back();
        found.map_or_else(|| "?".to_owned(), |(_, name)| format!("{:#}", rustc_demangle::demangle(name)))
    }

    /// Returns the address of every function, in rising order.
    pub fn functions(&self) -> impl Iterator<Item = u64> {
        self.functions.keys().copied()
    }

    /// Returns the addresses of the function that contains an address; `None` if there is none.
    pub fn bounds(&self, address: u64) -> Option<Range<u64>> {
        let section = self.code.iter().find(|code| code.contains(&address))?;
        let start = *self.functions.range(..=address).next_back()?.0;
        let next = self.functions.range(address + 1..).next().map_or(section.end, |(next, _)| *next);
        section.contains(&start).then(|| start..next.min(section.end))
    }

    /// Returns the word at an address in the data of this executable; `None` if the address is not in its data.
    pub fn word(&self, address: u64) -> Option<u64> {
        let inside = self.data.iter().any(|data| data.start <= address && address + 8 <= data.end);
        // SAFETY: the address is within the mapped data of the executable. The callers only read tables that are
        // never written.
        inside.then(|| unsafe { (address as *const u64).read_unaligned() })
    }

    /// Returns the name of the function of another library whose address a slot holds.
    pub fn import(&self, slot: u64) -> Option<&str> {
        self.imports.get(&slot).map(String::as_str)
    }
}

/// True if a function of the standard library always panics.
pub(crate) fn never_returns(function: &str) -> bool {
    let diverging =
        ["core::panicking::", "core::slice::index::", "core::option::", "core::result::", "core::str::"];
    diverging.iter().any(|module| function.starts_with(module))
        && ["panic", "_fail", "_failed"].iter().any(|name| function.contains(name))
}
