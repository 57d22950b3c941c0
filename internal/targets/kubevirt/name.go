package kubevirt

import (
	"strconv"

	"github.com/decamp/decamp/internal/targets"
)

// maxName leaves room, in the 63 bytes of a label, for the number of a disk: names of DataVolumes
// become labels of CDI's pods.
const maxName = 52

// Name turns a VM's display name into a name of Kubernetes: a DNS label as RFC 1123 has it. Accents
// are left off, and what remains that cannot be in it becomes "-". A name that lost letters by that,
// or its end, ends in a hash of the whole, so that it stays different from others. Names that differ
// in capitals, spaces and signs only come to the same; the place finds out.
func Name(name string) string { return targets.Alphabet{Most: maxName}.Word(name, "vm") }

// diskName is the name of the DataVolume of a VM's i-th disk.
func diskName(vm string, i int) string { return vm + "-disk" + strconv.Itoa(i) }
