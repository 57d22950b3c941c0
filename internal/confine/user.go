package confine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// A capabilitySet is a set of Linux capabilities with one bit for each.
type capabilitySet uint64

// dropUser lists the capabilities for running QEMU as another user: to change the user,
// to pass files to it, to read and remove its files, and to kill it.
var dropUser = []int{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_KILL}

// has reports whether the set contains all of the capabilities.
func (s capabilitySet) has(capabilities ...int) bool {
	for _, c := range capabilities {
		if s>>c&1 == 0 {
			return false
		}
	}
	return true
}

// readCapabilities returns the effective capabilities of this process. The set is empty
// if the process is not root.
func readCapabilities() (capabilitySet, error) {
	if os.Geteuid() != 0 {
		return 0, nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // sets of 32 capabilities
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return capabilitySet(data[1].Effective)<<32 | capabilitySet(data[0].Effective), nil
}

// The range of user ids from which QEMU's are chosen. By systemd's conventions
// (UIDS-GIDS), nothing else uses it. It fits into the 65,536 ids that a user namespace
// usually has.
const (
	firstUser = 60578 // first ID of the range
	lastUser  = 61183 // last ID of the range
)

// newUser returns a random ID that no process, user account or group has. The error is
// fault.Conflict if all are in use.
func newUser() (uint32, error) {
	taken := usedIDs()
	for _, i := range rand.Perm(lastUser - firstUser + 1) {
		id := uint32(firstUser + i)
		text := strconv.Itoa(firstUser + i)
		_, noUser := user.LookupId(text)
		_, noGroup := user.LookupGroupId(text)
		// The look-ups must fail: the ID has no name.
		if !taken[id] && noUser != nil && noGroup != nil {
			return id, nil
		}
	}
	return 0, fault.New(fault.Conflict, "all user IDs from %d to %d are in use, and QEMU requires a free one", firstUser, lastUser).
		WithHint("end one of their processes: ps -eo uid,pid,args")
}

// usedIDs returns the user IDs of all processes.
func usedIDs() map[uint32]bool {
	all := map[uint32]bool{}
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, p := range processes {
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil { // the process may have ended
			all[st.Uid] = true
		}
	}
	return all
}
