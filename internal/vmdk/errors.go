package vmdk

import "github.com/decamp/decamp/internal/fault"

// A warner receives warnings about a disk that is still readable. It may be called concurrently, and
// several times with the same warning.
type warner func(format string, args ...any)

const (
	// remedy for a file that was valid at the host
	damagedHint = "copy the file again and compare its checksum with the one on the host; check it there with vmkfstools -x check disk.vmdk"

	// remedy for a format that only VMware's tools read
	cloneHint = "clone the disk to a flat one: vmkfstools -i old.vmdk -d thin new.vmdk on the host"
)

// corruptFile returns a fault.Corrupt error about the data file name.
func corruptFile(name, format string, args ...any) *fault.Error {
	return fault.New(fault.Corrupt, "%s: "+format, append([]any{name}, args...)...).
		WithHint("%s", damagedHint)
}

// unsupportedFile returns a fault.Unsupported error about the data file name, with the advice to clone
// the disk.
func unsupportedFile(name, format string, args ...any) *fault.Error {
	return fault.New(fault.Unsupported, "%s: "+format, append([]any{name}, args...)...).
		WithHint("%s", cloneHint)
}
