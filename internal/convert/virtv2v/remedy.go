package virtv2v

import (
	"regexp"

	"github.com/decamp/decamp/internal/fault"
)

// A remedy is the kind and hint for a failure with a known message.
type remedy struct {
	words *regexp.Regexp // pattern of the message
	kind  fault.Kind     // kind of the error
	hint  string         // hint for the user
}

// compat is the end of hints about guests that virt-v2v does not support.
const compat = "or use the compat profile, which changes nothing in the guest: --hardware compat"

// remedies contains the failures that users of virt-v2v report. The first match applies.
var remedies = []remedy{
	{regexp.MustCompile(`(?i)supermin.*(kernel|modules)|supermin.*(?:lstat|modules)`), fault.NotFound,
		"its appliance requires a readable kernel of this machine: apt install linux-image-cloud-amd64; chmod +r /boot/vmlinuz-*; then try: libguestfs-test-tool"},
	{regexp.MustCompile(`(?i)nbdkit is not installed`), fault.NotFound, InstallHint},
	{regexp.MustCompile(`(?i)could not find key to open|could not read key`), fault.Denied,
		"write the passphrase, or BitLocker's recovery key, to a file: --key-file PATH"},
	{regexp.MustCompile(`(?i)rhsrvany|pvvxsvc`), fault.NotFound, toolsHint},
	{regexp.MustCompile(`(?i)no space left|not enough free space|insufficient free space`), fault.Full,
		"check whether the file system of this machine is full: df -h /var/tmp; otherwise free space on the guest's system volume at the source, and copy it again"},
	{regexp.MustCompile(`(?i)hibernat|fast ?restart|unclean|read-only|is mounted ro`), fault.Conflict,
		"in the guest, at the source: powercfg /h off, chkdsk /f, and shutdown /s /t 0; then copy it again"},
	{regexp.MustCompile(`(?i)could not detect the source guest|no root device found|inspection`), fault.Unsupported,
		"it found no known operating system: check that the system disk is migrated and not encrypted; " + compat},
	{regexp.MustCompile(`(?i)multi-boot|dual-boot|multi boot`), fault.Unsupported,
		"the disks contain several operating systems; " + compat},
	{regexp.MustCompile(`(?i)virtio.?win|no virtio drivers|virtio drivers`), fault.NotFound,
		"set a virtio-win with drivers for this Windows: --virtio-win /usr/share/virtio-win/virtio-win.iso"},
	{regexp.MustCompile(`(?i)unable to convert this guest|does not support|not supported|unsupported`), fault.Unsupported,
		"read its log; a newer virt-v2v may support the guest; " + compat},
	{regexp.MustCompile(`(?i)appliance closed|guestfs_launch failed|could not create appliance|KVM|exited with error|appliance`), fault.Unsupported,
		"test whether its appliance starts: LIBGUESTFS_BACKEND=direct LIBGUESTFS_BACKEND_SETTINGS=force_tcg libguestfs-test-tool"},
	{regexp.MustCompile(`(?i)unrecognized option|unknown option|usage:`), fault.Unsupported, "install a newer one: " + InstallHint},
}

// failureError returns the error for a failed process. status is its exit status and log the path of
// its log.
func (s *messages) failureError(status error, log string) error {
	why := s.lastError()
	for _, r := range remedies {
		if r.words.MatchString(why) {
			return fault.New(r.kind, "virt-v2v: %s", why).WithHint("%s. Its log: %s", r.hint, log)
		}
	}
	if why == "" {
		why = "it printed nothing"
	}
	return fault.New(fault.Unsupported, "virt-v2v ended with %w: %s", status, why).WithHint("see its log: %s; %s", log, compat)
}
