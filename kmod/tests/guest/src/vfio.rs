//! Tests that memory which a user of VFIO maps for a device is cleared as one extent by the automatic rule: QEMU emulates
//! the IOMMU. The user of VFIO knows nothing of the module.

use std::ffi::c_void;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::automatic::Automatic;
use crate::callers::ALL;
use crate::huge::{HugeMapping, MIDDLE, Source};
use crate::module::{self, Fault, counted};

/// QEMU's device `edu`.
const DEVICE: [(&str, &str); 2] = [("vendor", "0x1234"), ("device", "0x11e8")];
const PAGES: usize = 8;

const SET_IOMMU: u64 = 0x3b66;
const SET_CONTAINER: u64 = 0x3b68;
const MAP_DMA: u64 = 0x3b71;
const TYPE1V2: usize = 3;

pub(crate) fn tests(suite: &mut Suite) {
    for source in [Source::Pool2M, Source::Transparent] {
        let name = format!("vfio::memory_for_a_device::{source:?}");
        match module::kernel().is_ok_and(|kernel| kernel < (5, 12)) {
            true => suite
                .skip(&name, "this kernel's VFIO pins each page by a call of its own, which is too short"),
            false => suite.test(&name, move || memory_for_a_device(source)),
        }
    }
}

/// `struct vfio_iommu_type1_dma_map`.
#[repr(C)]
struct Map {
    argsz: u32,
    flags: u32,
    vaddr: u64,
    iova: u64,
    size: u64,
}

/// Makes a request of VFIO whose argument is a number or the address of a valid structure.
fn request(file: &File, request: u64, argument: usize) -> io::Result<()> {
    // SAFETY: the requests of this file read their argument, and pin memory that the callers own.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the folder of the device.
fn device() -> Result<PathBuf, Failed> {
    for entry in fs::read_dir("/sys/bus/pci/devices")? {
        let folder = entry?.path();
        if DEVICE
            .iter()
            .all(|(file, id)| fs::read_to_string(folder.join(file)).is_ok_and(|it| it.trim() == *id))
        {
            return Ok(folder);
        }
    }
    Err("QEMU has no device edu".into())
}

fn name(path: &Path) -> Result<String, Failed> {
    Ok(path.file_name().ok_or("no name")?.to_string_lossy().into_owned())
}

/// Gives the device to VFIO, and returns a container and the group of the device in it.
fn container() -> Result<(File, File), Failed> {
    let open = |path: &str| OpenOptions::new().read(true).write(true).open(path);
    // The emulated IOMMU does not remap interrupts, which the tests do not use.
    fs::write("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "1")?;
    let folder = device()?;
    if !folder.join("driver").exists() {
        fs::write(folder.join("driver_override"), "vfio-pci")?;
        fs::write("/sys/bus/pci/drivers_probe", name(&folder)?)?;
    }
    let group = name(&fs::read_link(folder.join("iommu_group"))?)?;
    let (container, group) = (open("/dev/vfio/vfio")?, open(&format!("/dev/vfio/{group}"))?);
    let number = container.as_raw_fd();
    request(&group, SET_CONTAINER, (&raw const number).addr())?;
    request(&container, SET_IOMMU, TYPE1V2)?;
    Ok((container, group))
}

fn memory_for_a_device(source: Source) -> Result<(), Failed> {
    let _on = Automatic::on()?;
    module::set("threshold", u64::MAX.to_string())?;
    let (container, _group) = container()?;
    for extent in [ALL, 0] {
        module::set("automatic", if extent == 0 { "0" } else { "1" })?;
        let mapping = HugeMapping::new(source, PAGES)?;
        let map = Map {
            argsz: size_of::<Map>() as u32,
            flags: 3,
            vaddr: mapping.address() as u64,
            iova: if extent == 0 { 1 << 32 } else { 0 },
            size: (PAGES * MIDDLE) as u64,
        };
        counted(&[Fault { size: MIDDLE, offset: 0, hint: extent }; PAGES], || {
            Ok(request(&container, MAP_DMA, std::ptr::from_ref(&map).cast::<c_void>().addr())?)
        })?;
        mapping.frames()?;
        assert_eq!(mapping.first_dirt(), None);
    }
    Ok(())
}
