package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/guest/tree"
)

// writeGuest prints what is inside a disk: the verdict first.
func (a *app) writeGuest(r guest.Report) {
	fmt.Fprintf(a.out, "\nGuest: %s\n", cmp.Or(plain(r.OS.Name), plain(r.OS.ID), "no operating system was found"))
	if r.Verdict != "" {
		fmt.Fprintf(a.out, "  %s\n", plain(r.Verdict))
	}
	a.writeFileSystems(r)
	if r.Linux != nil {
		a.writeKernels(r.Linux.Kernels)
		a.writeNICs(r.Linux.NICs)
	}
	if len(r.Warnings) > 0 {
		fmt.Fprintln(a.out, "\nTo be known")
		for _, w := range r.Warnings {
			fmt.Fprintf(a.out, "  %s: %s\n", w.Code, plain(w.Text))
		}
	}
}

// writeFileSystems lists partitions and logical volumes.
func (a *app) writeFileSystems(r guest.Report) {
	t := newTable("PLACE", "FILE SYSTEM", "LABEL", "SIZE", "FREE")
	t.alignRight(3, 4)
	rows := 0
	add := func(place string, kind guest.FileSystem, label string, length int64, u *tree.Usage) {
		free := "-"
		if u != nil {
			free = size(u.Free)
		}
		t.add(plain(place), cmp.Or(string(kind), "-"), cmp.Or(plain(label), "-"), size(length), free)
		rows++
	}
	for _, p := range r.Partitions {
		add(fmt.Sprintf("partition %d", p.Number), p.FileSystem, p.Label, p.Len, p.Usage)
	}
	for _, v := range r.Volumes {
		add(v.Group+"/"+v.Name, v.FileSystem, v.Label, v.Len, v.Usage)
	}
	if rows > 0 {
		fmt.Fprintln(a.out)
		t.write(a.out)
	}
}

func (a *app) writeKernels(kernels []linux.Kernel) {
	if len(kernels) == 0 {
		return
	}
	t := newTable("KERNEL", "INITRAMFS", "BY", "DRIVERS AT BOOT")
	for _, k := range kernels {
		by := strings.TrimSpace(k.Maker + " " + k.Compression)
		t.add(plain(k.Image), cmp.Or(plain(k.Initramfs), "-"), cmp.Or(plain(by), "-"), cmp.Or(strings.Join(k.Drivers, " "), "-"))
	}
	fmt.Fprintln(a.out)
	t.write(a.out)
}

func (a *app) writeNICs(nics []linux.NIC) {
	if len(nics) == 0 {
		return
	}
	t := newTable("NIC", "MAC", "KNOWN BY", "ADDRESSES", "FILE")
	for _, n := range nics {
		addresses := n.Addresses
		if n.DHCP {
			addresses = append([]string{"DHCP"}, addresses...)
		}
		t.add(cmp.Or(plain(n.Name), "-"), cmp.Or(plain(n.MAC), "-"), string(n.By), plain(strings.Join(addresses, " ")), plain(n.File))
	}
	fmt.Fprintln(a.out)
	t.write(a.out)
}
