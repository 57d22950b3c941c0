package kubevirt

import (
	"strconv"

	"github.com/decamp/decamp/internal/targets"
)

// maxName is the maximum length of a VM's name in bytes. A label has at most 63 bytes; the rest is for
// the number of a
// disk, because names of DataVolumes become labels of CDI's pods.
const maxName = 52

// Name converts a VM's name to a DNS label (RFC 1123) as described at targets.Alphabet.Word. Different
// names can give
// the same result; the delivery detects this.
func Name(name string) string { return targets.Alphabet{Most: maxName}.Word(name, "vm") }

// diskName returns the name of the DataVolume of a VM's i-th disk.
func diskName(vm string, i int) string { return vm + "-disk" + strconv.Itoa(i) }
