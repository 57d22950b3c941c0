package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/lab"
)

// peerSize is the size of the disk for other programs in bytes. It is smaller than
// decamp's, because some need a second for 50 MB. Their rates are constant from the
// first second.
const peerSize = 1 << 30

// A httpPeer is another program that downloads a flat file from an ESXi host.
type httpPeer struct {
	name  string                                 // name in the table
	needs []string                               // programs that must be installed
	note  string                                 // remark for the table
	argv  func(e *emulated, dir string) []string // returns the command; dir is a folder in memory
}

// httpPeers lists the programs with default options, and with options tuned by hand.
// They discard the data if they can, which is to their advantage.
var httpPeers = []httpPeer{
	{"curl", []string{"curl"}, "one connection", func(e *emulated, dir string) []string {
		return []string{"curl", "-fsSk", "-u", e.userPassword(), "-o", "/dev/null", e.diskURL()}
	}},
	{"govc datastore.download", []string{"govc"}, "one connection", func(e *emulated, dir string) []string {
		return []string{"env", "GOVC_INSECURE=1", "GOVC_URL=https://" + e.userPassword() + "@" + e.facts.Addr + "/sdk",
			"govc", "datastore.download", "-ds", "datastore1", benchVM + "/" + benchVM + "-flat.vmdk", "/dev/null"}
	}},
	{"rclone copyurl", []string{"rclone"}, "as shipped; its parallel mode cannot pass the dsName query", func(e *emulated, dir string) []string {
		return []string{"rclone", "copyurl", "--config", "/dev/null", "--no-check-certificate",
			"https://" + e.userPassword() + "@" + e.diskURL()[len("https://"):], filepath.Join(dir, "peer")}
	}},
	{"aria2c", []string{"aria2c"}, "as shipped", func(e *emulated, dir string) []string {
		return aria2c(e, dir)
	}},
	{"aria2c -x8 -s8 -k16M", []string{"aria2c"}, "tuned by hand", func(e *emulated, dir string) []string {
		return append(aria2c(e, dir), "-x8", "-s8", "-k16M")
	}},
	{"nbdkit curl + nbdcopy", []string{"nbdkit", "nbdcopy", "curl"}, "as shipped", func(e *emulated, dir string) []string {
		return []string{"nbdkit", "-U", "-", "curl", e.diskURL(), "sslverify=false", e.cookieScript(),
			"--run", `nbdcopy "$uri" null:`}
	}},
	{"nbdkit curl + nbdcopy, 8 threads, multi-conn unsafe", []string{"nbdkit", "nbdcopy", "curl"}, "tuned by hand", func(e *emulated, dir string) []string {
		return []string{"nbdkit", "-U", "-", "--threads=8", "--filter=multi-conn", "curl", e.diskURL(), "sslverify=false", e.cookieScript(),
			"multi-conn-mode=unsafe",
			"--run", `nbdcopy --threads=8 --connections=8 --request-size=4194304 "$uri" null:`}
	}},
}

// cookieScript returns the option that makes nbdkit log in once, like virt-v2v. With a
// password, nbdkit would open a session for each request and exhaust the host's
// sessions.
func (e *emulated) cookieScript() string {
	return fmt.Sprintf(`cookie-script=curl -fsSk -I -u '%s' '%s' | sed -n 's/^[Ss]et-[Cc]ookie: \([^;]*\).*/\1/p'`, e.userPassword(), e.diskURL())
}

// aria2c returns the command of aria2c, which can only write files. dir is in memory,
// where that costs least.
func aria2c(e *emulated, dir string) []string {
	return []string{"aria2c", "-q", "--check-certificate=false", "--file-allocation=none", "--allow-overwrite=true",
		"--http-auth-challenge=false", "--http-user=" + e.facts.User, "--http-passwd=" + e.facts.Password,
		"-d", dir, "-o", "peer", e.diskURL()}
}

// userPassword returns user:password.
func (e *emulated) userPassword() string { return e.facts.User + ":" + e.facts.Password }

// cappedPeers returns the rate of each program as a share of the datastore's limit, in
// percent.
func cappedPeers(ctx context.Context, limits lab.Limits) []Peer {
	return peersOn(ctx, limits, func(u usage) (float64, string) {
		rate := u.rate(peerSize)
		return 100 * rate / (datastoreCap / 1e6), fmt.Sprintf("%.1f MB/s, %.2f CPU s/GiB", rate, u.cpuPerGiB(peerSize))
	})
}

// uncappedPeers returns the processor time of each program in seconds per GiB.
func uncappedPeers(ctx context.Context) []Peer {
	return peersOn(ctx, lab.Limits{}, func(u usage) (float64, string) {
		return u.cpuPerGiB(peerSize), fmt.Sprintf("%.0f MB/s", u.rate(peerSize))
	})
}

// peersOn runs each program once. A program that is not installed or fails stays in the
// table with the reason, so that a missing row is not mistaken for a result.
func peersOn(ctx context.Context, limits lab.Limits, figure func(usage) (float64, string)) []Peer {
	var peers []Peer
	for _, p := range httpPeers {
		row := Peer{Name: p.name, Note: p.note}
		// The error becomes the note of the peer.
		if u, err := p.measurePeer(ctx, limits); err != nil {
			row.Note = "no figure: " + err.Error()
		} else {
			value, note := figure(u)
			row.Value, row.Note = value, p.note+"; "+note
		}
		peers = append(peers, row)
	}
	return peers
}

// measurePeer runs the program with a separate emulated host, so that sessions of other
// programs do not affect it.
func (p httpPeer) measurePeer(ctx context.Context, limits lab.Limits) (usage, error) {
	if err := requirePrograms(p.needs...); err != nil {
		return usage{}, err
	}
	e, err := startLab(ctx, lab.Disk{Capacity: peerSize, Fill: 100, Thick: true}, limits)
	if err != nil {
		return usage{}, err
	}
	defer e.stop()
	dir, err := os.MkdirTemp("/dev/shm", "decamp-bench")
	if err != nil {
		return usage{}, err
	}
	defer os.RemoveAll(dir)
	argv := p.argv(e, dir)
	return measureCommand(ctx, argv[0], argv[1:]...)
}
