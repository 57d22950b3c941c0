package matrix

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/bench"
)

// counts contains counters of the kernel: the processor time of this process, the
// retransmitted TCP segments of the network namespace, and the writes of block devices.
type counts struct {
	at      time.Time          // time of the reading
	cpu     time.Duration      // user and system time of this process
	resent  int64              // retransmitted TCP segments
	devices map[device]written // writes by device
}

// device is a block device's number.
type device struct{ major, minor uint32 }

// written contains the counters of one device.
type written struct {
	writes  int64         // completed write requests
	sectors int64         // sectors of 512 bytes, regardless of the device's sector size
	busy    time.Duration // time with a request in progress
}

const (
	diskStats = "/proc/diskstats" // counters of block devices
	netSNMP   = "/proc/net/snmp"  // counters of TCP

	sectorSize = 512 // unit of diskStats in bytes
)

// countNow reads all counters.
func countNow() (counts, error) {
	c := counts{at: time.Now()}
	var u unix.Rusage
	disks, err := os.ReadFile(diskStats)
	snmp, err2 := os.ReadFile(netSNMP)
	if err := errors.Join(err, err2, unix.Getrusage(unix.RUSAGE_SELF, &u)); err != nil {
		return c, err
	}
	c.cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	c.devices = parseDiskStats(disks)
	c.resent, err = parseResent(snmp)
	return c, err
}

// Fields of a line of /proc/diskstats, from 0 (Documentation/admin-guide/iostats.rst in
// Linux).
const (
	fieldMajor, fieldMinor      = 0, 1   // number of the device
	fieldWrites, fieldSectors   = 7, 9   // completed writes, and sectors written
	fieldBusy, diskStatsAtLeast = 12, 14 // milliseconds with a request in progress, and number of fields
)

// parseDiskStats parses /proc/diskstats. Lines that it does not understand are ignored;
// their devices are unknown.
func parseDiskStats(text []byte) map[device]written {
	all := map[device]written{}
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		if len(f) < diskStatsAtLeast {
			continue
		}
		var n [diskStatsAtLeast]int64
		var errs []error
		for _, i := range []int{fieldMajor, fieldMinor, fieldWrites, fieldSectors, fieldBusy} {
			v, err := strconv.ParseInt(f[i], 10, 64)
			n[i], errs = v, append(errs, err)
		}
		if errors.Join(errs...) == nil {
			all[device{uint32(n[fieldMajor]), uint32(n[fieldMinor])}] = written{n[fieldWrites], n[fieldSectors], time.Duration(n[fieldBusy]) * time.Millisecond}
		}
	}
	return all
}

// parseResent returns RetransSegs from the two lines that begin with Tcp: the names,
// then the values.
func parseResent(text []byte) (int64, error) {
	var names []string
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		switch {
		case len(f) == 0 || f[0] != "Tcp:":
		case names == nil:
			names = f
		default:
			for i, name := range names {
				if name == "RetransSegs" && i < len(f) {
					return strconv.ParseInt(f[i], 10, 64)
				}
			}
		}
	}
	return 0, fmt.Errorf("%s has no RetransSegs", netSNMP)
}

// deviceOf returns the device of a folder's file system. tmpfs, Btrfs and network file
// systems have a number that is not in /proc/diskstats.
func deviceOf(folder string) (device, error) {
	var st unix.Stat_t
	if err := unix.Stat(folder, &st); err != nil {
		return device{}, fmt.Errorf("look at %s: %w", folder, err)
	}
	return device{unix.Major(st.Dev), unix.Minor(st.Dev)}, nil
}

// addCounts sets the counters of a row to the difference of two readings. Devices that
// several folders share count once.
func addCounts(row *bench.Row, before, after counts, folders []string) {
	row.CPU = (after.cpu - before.cpu).Seconds()
	resent := after.resent - before.resent
	row.Retransmits = &resent
	if len(folders) == 0 {
		return
	}
	var sum written
	seen := map[device]bool{}
	for _, f := range folders {
		d, err := deviceOf(f)
		// A device that appeared during the measurement has no difference.
		was, known := before.devices[d]
		if err != nil || !known {
			noteAbsent(row, "written", "the file system of "+f+" has no device in "+diskStats)
			return
		}
		if now := after.devices[d]; !seen[d] {
			seen[d] = true
			sum.writes, sum.sectors = sum.writes+now.writes-was.writes, sum.sectors+now.sectors-was.sectors
			// Devices work in parallel, so the busiest one counts.
			sum.busy = max(sum.busy, now.busy-was.busy)
		}
	}
	took := after.at.Sub(before.at).Seconds()
	row.Written = bench.Device{IOPS: float64(sum.writes) / took, MiBs: float64(sum.sectors) * sectorSize / bench.MiB / took, Busy: min(sum.busy.Seconds()/took, 1)}
}

// noteAbsent records why a value was not measured.
func noteAbsent(row *bench.Row, key, why string) {
	if row.Absent == nil {
		row.Absent = map[string]string{}
	}
	row.Absent[key] = why
}
