package vmdk

import "github.com/decamp/decamp/internal/fault"

// A warner receives warnings about a disk that is still readable. It may be called concurrently, and
// several times with the same warning.
type warner func(format string, args ...any)

const (
	// damagedHint is for a file that was right once.
	damagedHint = "copy the file again and compare its checksum with the one on the host; check it there with vmkfstools -x check disk.vmdk"

	// cloneHint is for a format that VMware's own tools understand.
	cloneHint = "clone the disk to a flat one: vmkfstools -i old.vmdk -d thin new.vmdk on the host"
)

// corruptFile is an error in a data file.
func corruptFile(name, format string, args ...any) *fault.Error {
	return fault.New(fault.Corrupt, "%s: "+format, append([]any{name}, args...)...).
		WithHint("%s", damagedHint)
}

func unsupportedFile(name, format string, args ...any) *fault.Error {
	return fault.New(fault.Unsupported, "%s: "+format, append([]any{name}, args...)...).
		WithHint("%s", cloneHint)
}
