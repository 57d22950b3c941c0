package virtv2v

import (
	"encoding/xml"
)

// A Job is a guest to be changed.
type Job struct {
	Name      string // name of the VM
	MemoryMiB int64
	CPUs      int
	EFI       bool
	Disks     []string // qcow2 overlays, by absolute path, in the guest's order

	// Windows is what the guest is, which needs drivers: see Options.Drivers. Nil: it is another.
	Windows *Windows

	// Keys open the Locked volumes, those of the guest that are encrypted.
	Keys   []Key
	Locked []Locked

	// Log is the file for all output. An existing file is replaced.
	Log string

	// Tell receives the current activity, in a few words. It may be nil.
	Tell func(doing string)
}

// domain is as much of a libvirt domain as virt-v2v reads.
type domain struct {
	XMLName xml.Name `xml:"domain"`
	Type    string   `xml:"type,attr"`
	Name    string   `xml:"name"`
	Memory  struct {
		Unit  string `xml:"unit,attr"`
		Value int64  `xml:",chardata"`
	} `xml:"memory"`
	CPUs int `xml:"vcpu"`
	OS   struct {
		Firmware string `xml:"firmware,attr,omitempty"`
		Type     string `xml:"type"`
	} `xml:"os"`
	Disks []domainDisk `xml:"devices>disk"`
}

type domainDisk struct {
	Type   string `xml:"type,attr"`
	Device string `xml:"device,attr"`
	Driver struct {
		Name string `xml:"name,attr"`
		Type string `xml:"type,attr"`
	} `xml:"driver"`
	Source struct {
		File string `xml:"file,attr"`
	} `xml:"source"`
	Target struct {
		Dev string `xml:"dev,attr"`
		Bus string `xml:"bus,attr"`
	} `xml:"target"`
}

// xml is the domain of a job.
func (j Job) xml() ([]byte, error) {
	d := domain{Type: "kvm", Name: j.Name, CPUs: max(j.CPUs, 1)}
	d.Memory.Unit, d.Memory.Value = "MiB", max(j.MemoryMiB, 1)
	d.OS.Type = "hvm"
	if j.EFI {
		d.OS.Firmware = "efi"
	}
	for i, path := range j.Disks {
		x := domainDisk{Type: "file", Device: "disk"}
		x.Driver.Name, x.Driver.Type = "qemu", "qcow2"
		x.Source.File = path
		x.Target.Dev, x.Target.Bus = "sd"+letters(i), "scsi"
		d.Disks = append(d.Disks, x)
	}
	return xml.MarshalIndent(d, "", "  ")
}

// letters counts a, b … z, aa, ab as Linux names disks.
func letters(n int) string {
	if n < 26 {
		return string(rune('a' + n))
	}
	return letters(n/26-1) + letters(n%26)
}
