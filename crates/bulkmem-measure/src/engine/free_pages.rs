//! Whether a virtual machine gives its free memory back to the host.

use std::fs;
use std::path::Path;

/// The virtio device that a balloon is, as sysfs writes it.
const BALLOON: &str = "0x0005";
/// The balloon's feature `VIRTIO_BALLOON_F_REPORTING`: the guest reports free pages, and the host takes them.
const REPORTING: usize = 5;

/// Returns true if the kernel reports free pages to the host, which takes them: the next touch of each waits for the host. Reads sysfs
/// below a folder.
pub(crate) fn go_back_to_the_host(root: &Path) -> bool {
    let Ok(devices) = fs::read_dir(root.join("sys/bus/virtio/devices")) else { return false };
    let reports = |device: &Path| {
        let read = |file: &str| fs::read_to_string(device.join(file)).unwrap_or_default();
        // A digit for each feature, the first for number 0.
        read("device").trim() == BALLOON && read("features").as_bytes().get(REPORTING) == Some(&b'1')
    };
    devices.flatten().any(|device| reports(&device.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_balloon_that_reports_counts() {
        let root = tempfile::tempdir().unwrap();
        assert!(!go_back_to_the_host(root.path()), "no virtio");
        let plant = |name: &str, device: &str, features: &str| {
            let folder = root.path().join("sys/bus/virtio/devices").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("device"), device).unwrap();
            fs::write(folder.join("features"), features).unwrap();
        };
        plant("virtio0", "0x0001\n", "1111111111\n");
        plant("virtio1", "0x0005\n", "0110100000\n");
        plant("virtio2", "0x0005\n", "011\n");
        assert!(!go_back_to_the_host(root.path()), "a network device, and balloons without");
        plant("virtio3", "0x0005\n", "0110010100\n");
        assert!(go_back_to_the_host(root.path()));
    }
}
