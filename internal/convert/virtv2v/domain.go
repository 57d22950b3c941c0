package virtv2v

import (
	"encoding/xml"
)

// A Job is a guest to convert.
type Job struct {
	Name      string   // name of the VM
	MemoryMiB int64    // memory of the VM
	CPUs      int      // vCPUs of the VM
	EFI       bool     // the VM boots by EFI
	Disks     []string // absolute paths of qcow2 overlays, in the order of the guest's disks

	// Windows is the guest's Windows, which requires drivers; see Options.Drivers. It is nil for other
	// systems.
	Windows *Windows

	// Keys open the Locked volumes.
	Keys   []Key
	Locked []Locked // encrypted volumes of the guest

	// Log is the path of the file for all output. An existing file is replaced.
	Log string

	// Report is called with the current activity, in a few words. It may be nil.
	Report func(doing string)
}

// domain contains the elements of a libvirt domain that virt-v2v reads.
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

// domainDisk is a disk of a libvirt domain.
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

// domainXML returns the libvirt domain of the job.
func (j Job) domainXML() ([]byte, error) {
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
		x.Target.Dev, x.Target.Bus = "sd"+diskLetters(i), "scsi"
		d.Disks = append(d.Disks, x)
	}
	return xml.MarshalIndent(d, "", "  ")
}

// diskLetters returns the suffix of disk n in Linux, counted from 0: a, b … z, aa, ab.
func diskLetters(n int) string {
	if n < 26 {
		return string(rune('a' + n))
	}
	return diskLetters(n/26-1) + diskLetters(n%26)
}
