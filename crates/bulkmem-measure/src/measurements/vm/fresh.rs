//! Fresh memory, prepared by the kernel.

use std::cell::Cell;

use bulkmem::Pages;

use crate::MeasureError;
use crate::measurements::vm::prefault::{Job, prefaulted};
use crate::measurements::vm::{
    GUEST, HINTED, HINTED_GUEST, Memory, Metric, PREFAULT, PageSize, Run, VmOptions, kernel, kvm,
};

impl VmOptions {
    /// Measures memory prepared by each number of threads. With `guest`, also as the memory of a virtual machine, which
    /// checks its memory if `guest` is true. With `hint`, each also with the memory declared to the kernel module.
    pub(super) fn fresh(
        &self,
        run: &mut Run<'_>,
        pages: PageSize,
        guest: Option<bool>,
        hint: bool,
    ) -> Result<(), MeasureError> {
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        let stop = run.stop_flag();
        let backing = Cell::new(None);
        let mut samplers = Vec::new();
        for &threads in &self.threads {
            let config = self.config(pages, threads, Memory::Fresh);
            let backing = &backing;
            let hints: &[bool] = if hint { &[false, true] } else { &[false] };
            for &hint in hints {
                let mut first = None;
                let job = Job { size, pages, threads, hint };
                let name = if hint { HINTED } else { PREFAULT };
                samplers.push(kernel(name, &config, move || {
                    // Querying the page size takes time, so only the first sample does it.
                    let phases = prefaulted(job, first.is_none(), stop)?;
                    backing.set(phases.backing.or(backing.get()));
                    let first = *first.get_or_insert(phases.ready());
                    let also: Vec<_> = phases.named().chain([("first_s", first)]).collect();
                    Ok(self.sample(phases.ready(), &also))
                }));
                if let Some(look) = guest {
                    let name = if hint { HINTED_GUEST } else { GUEST };
                    samplers.push(kernel(name, &config, move || {
                        let phases = kvm::create(job, look, stop)?;
                        let also: Vec<_> = phases.named().collect();
                        Ok(self.sample(phases.ready(), &also))
                    }));
                }
            }
        }
        let what = format!("fresh, {pages} pages");
        run.interleave(&what, Metric::Seconds, self.runs, &mut samplers)?;
        drop(samplers);
        run.backed_by(backing.get());
        if let (Pages::Transparent, Some(page)) = (pages.0, backing.get())
            && page == bulkmem::machine::Machine::current().page_size
        {
            run.note(format!(
                "the kernel used pages of {page} bytes instead of transparent huge pages: memory is fragmented (as root: echo \
                 1 > /proc/sys/vm/compact_memory)"
            ));
        }
        Ok(())
    }
}
