package lab

import (
	"encoding/pem"
	"fmt"
	"io"
)

// URL is the API's address, https://host:port/sdk, without user and password.
func (l *Lab) URL() string { return "https://" + l.main.addr + "/sdk" }

// Addr is the host:port of URL.
func (l *Lab) Addr() string { return l.main.addr }

// HostAddr is the host:port at which an ESXi of an emulated vCenter serves /folder.
// It is empty unless Config.HostListeners is set.
func (l *Lab) HostAddr(host string) string {
	if e := l.hosts[host]; e != nil {
		return e.addr
	}
	return ""
}

// Fingerprint is the SHA-256 of the current certificate: upper-case hex pairs with colons.
func (l *Lab) Fingerprint() string { return l.main.cert.Load().fingerprint }

// CertificatePEM is the current certificate for clients that take one as trust anchor.
func (l *Lab) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.main.cert.Load().pair.Certificate[0]})
}

// User is the only account.
func (l *Lab) User() string { return l.cfg.User }

// Password is the account's password.
func (l *Lab) Password() string { return l.cfg.Password }

// Faults injects faults into /folder.
func (l *Lab) Faults() *Faults { return l.faults }

// DiskContent is what a disk of the lab holds.
type DiskContent struct {
	io.ReaderAt
	Size      int64
	Allocated int64 // bytes, at the granularity of the allocation map
	Key       int32 // device key in the API
}

// Disk returns what the nth disk of a VM holds, to compare copies with. While the guest
// writes, each read sees the disk as it is then.
func (l *Lab) Disk(vm string, n int) (DiskContent, error) {
	d, err := l.disk(vm, n)
	if err != nil {
		return DiskContent{}, err
	}
	return DiskContent{ReaderAt: d.content, Size: d.content.Size(), Allocated: d.allocated, Key: d.key}, nil
}

// DiskAt returns what the nth disk of a VM held when a snapshot was taken.
func (l *Lab) DiskAt(vm string, n int, snapshot string) (DiskContent, error) {
	d, err := l.disk(vm, n)
	if err != nil {
		return DiskContent{}, err
	}
	d.vm.writing.Lock()
	defer d.vm.writing.Unlock()
	for i, s := range d.vm.snaps {
		if s.name == snapshot && s.ref.Value != "" && snapshotted(d.spec) {
			v := d.through(d.chain()[:i+1])
			return DiskContent{ReaderAt: v, Size: v.Size(), Allocated: d.allocated, Key: d.key}, nil
		}
	}
	return DiskContent{}, fmt.Errorf("VM %q has no snapshot %q", vm, snapshot)
}

// HideFromMap makes the allocation map of a disk leave out ranges from now on, whether they
// hold data or not: a lying map.
func (l *Lab) HideFromMap(vm string, n int, spans ...Span) error {
	d, err := l.disk(vm, n)
	if err != nil {
		return err
	}
	d.hide.Store(&spans)
	return nil
}

// limits returns the limits in force.
func (l *Lab) limits() Limits { return *l.shape.Load() }

// SetLimits changes the limits; a rate per connection takes effect on new connections.
func (l *Lab) SetLimits(limits Limits) {
	l.shape.Store(&limits)
	for _, dc := range l.datacenters {
		for _, ds := range dc.datastores {
			ds.rate.setRate(int64(limits.DatastoreRate))
		}
	}
}

// Stats returns the counters as they are now.
func (l *Lab) Stats() Stats { return l.stats.snapshot() }

// ResetStats sets every counter to zero.
func (l *Lab) ResetStats() { l.stats.reset() }
