//! This process's own executable: where its code lies and what its functions are called.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind, SymbolKind};

/// This process's own executable.
#[derive(Debug)]
pub struct Image {
    code: Vec<Range<u64>>,
    /// What is read or written as data.
    data: Vec<Range<u64>>,
    /// Functions by address.
    functions: BTreeMap<u64, String>,
    /// Names of functions of other libraries, by the address of the slot that holds theirs.
    imports: BTreeMap<u64, String>,
}

impl Image {
    /// This process's own executable, read once.
    ///
    /// # Errors
    /// Where it cannot be read or carries no symbols (build the tests without `strip`).
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
            return Err("the test executable carries no symbols: build it without `strip`".to_owned());
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

    /// Whether there is code of this executable at that address.
    pub fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|code| code.contains(&address))
    }

    /// The function that starts at or last before that address; "?" where there is none.
    pub fn function(&self, address: u64) -> String {
        let found = self.functions.range(..=address).next_back();
        found.map_or_else(|| "?".to_owned(), |(_, name)| format!("{:#}", rustc_demangle::demangle(name)))
    }

    /// From where to where the function that has this address goes; `None` where there is none.
    pub fn bounds(&self, address: u64) -> Option<Range<u64>> {
        let section = self.code.iter().find(|code| code.contains(&address))?;
        let start = *self.functions.range(..=address).next_back()?.0;
        let next = self.functions.range(address + 1..).next().map_or(section.end, |(next, _)| *next);
        section.contains(&start).then(|| start..next.min(section.end))
    }

    /// What the data of this executable hold at an address now; `None` for an address of no data.
    pub fn word(&self, address: u64) -> Option<u64> {
        let inside = self.data.iter().any(|data| data.start <= address && address + 8 <= data.end);
        // SAFETY: it lies within the executable's mapped data. Only tables that nothing writes to are looked for.
        inside.then(|| unsafe { (address as *const u64).read_unaligned() })
    }

    /// The name of the other library's function whose address that slot holds.
    pub fn import(&self, slot: u64) -> Option<&str> {
        self.imports.get(&slot).map(String::as_str)
    }
}
