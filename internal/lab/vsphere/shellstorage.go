package vsphere

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/lab/nfsclient"
	"github.com/decamp/decamp/internal/lab/shell"
)

type (
	hostService = types.HostService
	managedRef  = types.ManagedObjectReference
)

const (
	vmkfstoolsFailed = 255                   // exit status of vmkfstools after any error
	killedStatus     = 128 + int(shell.KILL) // exit status of a killed process
)

// vmkfstools supports -i SRC DST [-d FORMAT] and -U DISK.
func (h *shellHost) vmkfstools(c *shell.Call) int {
	format := "zeroedthick" // the default of -i
	var clone bool
	var names []string
	var remove string
	for args := c.Args[1:]; len(args) > 0; args = args[1:] {
		value := ""
		if len(args) > 1 {
			value = args[1]
		}
		switch a := args[0]; {
		case a == "-i" || a == "--clonevirtualdisk":
			clone = true
		case a == "-d" || a == "--diskformat":
			format, args = value, args[1:]
		case a == "-U" || a == "--deletevirtualdisk":
			remove, args = value, args[1:]
		case strings.HasPrefix(a, "-") || len(names) == 2:
			return printUsage(c)
		default:
			names = append(names, absPath(c, a))
		}
		if len(args) == 0 {
			return printUsage(c)
		}
	}
	switch {
	case remove != "" && !clone:
		return h.deleteDisk(c, absPath(c, remove))
	case clone && len(names) == 2:
		return h.cloneDisk(c, names[0], names[1], format)
	}
	return printUsage(c)
}

// printUsage prints the supported forms and returns status 1.
func printUsage(c *shell.Call) int {
	fmt.Fprintln(c.Err, "vmkfstools: the emulator supports -i SRC DST [-d FORMAT] and -U DISK")
	return 1
}

// formatNames are the names of formats in the output of vmkfstools.
var formatNames = map[string]string{"thin": "VMFS thin-provisioned", "zeroedthick": "VMFS zeroedthick", "eagerzeroedthick": "VMFS eagerzeroedthick"}

// cloneDisk copies a disk. Like vmkfstools, it prints its progress with carriage returns, and an error
// right after it.
func (h *shellHost) cloneDisk(c *shell.Call, src, dst, format string) int {
	if !h.beginClone() {
		return killedStatus
	}
	defer h.endClone()
	fmt.Fprintf(c.Out, "Destination disk format: %s\nCloning disk '%s'...\n", formatNames[format], src)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer context.AfterFunc(c.Ctx, func() { cancel(errKilled) })()
	err := h.lab.runClone(ctx, h.ref, src, dst, format, func(percent int) {
		if _, err := fmt.Fprintf(c.Out, "\rClone: %d%% done.", percent); err != nil {
			cancel(errKilled) // SIGPIPE
		}
	})
	switch {
	case errors.Is(err, errKilled):
		return killedStatus
	case err != nil:
		h.lab.cfg.Log.Debug("vmkfstools", "host", h.name, "disk", src, "err", err)
		text, code := cloneText(err)
		fmt.Fprintf(c.Err, "Failed to clone disk: %s (%d).\n", text, code)
		return vmkfstoolsFailed
	}
	fmt.Fprintln(c.Out)
	return 0
}

// beginClone counts a copy. It returns false if SSH.MaxClones are in progress: the process is then
// killed, as without memory in hostd-tmp.
func (h *shellHost) beginClone() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if limit := h.lab.cfg.SSH.MaxClones; limit > 0 && h.clones >= limit {
		return false
	}
	h.clones++
	return true
}

// endClone ends what beginClone began.
func (h *shellHost) endClone() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clones--
}

// cloneText returns vmkfstools' message and number for an error. Messages and numbers other than 393225
// are not documented; callers must use the exit status.
func cloneText(err error) (text string, code int) {
	switch {
	case errors.Is(err, errExists):
		return "The file already exists", 39
	case errors.Is(err, errNoSource), errors.Is(err, errNoTarget):
		return "No such file or directory", 131081
	case errors.Is(err, errInUse):
		return "Failed to lock the file", 16392
	case errors.Is(err, errBadFormat):
		return "The destination does not support this disk format", 1
	case nfsclient.StatusOf(err) == nfsclient.ErrNoSpc:
		return "There is not enough space on the file system for the selected operation", 13
	}
	return "No such device or address", 393225
}

// deleteDisk removes a descriptor and its flat file.
func (h *shellHost) deleteDisk(c *shell.Call, name string) int {
	for _, file := range []string{name, strings.TrimSuffix(name, ".vmdk") + "-flat.vmdk"} {
		if err := h.files.removeFile(c.Ctx, file); err != nil {
			fmt.Fprintf(c.Err, "Failed to delete virtual disk: %v\n", err)
			return vmkfstoolsFailed
		}
	}
	return 0
}

// esxcli supports storage nfs add, list and remove. The free licence does not restrict it.
func (h *shellHost) esxcli(c *shell.Call) int {
	args := c.Args[1:]
	if len(args) < 3 || args[0] != "storage" || args[1] != "nfs" {
		fmt.Fprintf(c.Err, "Error: Unknown command or namespace %s\n", strings.Join(args, " "))
		return 1
	}
	opts, err := parseOptions(args[3:])
	if err == nil {
		switch args[2] {
		case "add":
			err = h.addNFS(opts)
		case "list":
			h.listNFS(c)
		case "remove":
			err = h.removeNFS(opts)
		default:
			err = fmt.Errorf("unknown command %s", args[2])
		}
	}
	if err != nil {
		h.lab.cfg.Log.Debug("esxcli", "host", h.name, "err", err)
		fmt.Fprintln(c.Err, err)
		return 1
	}
	return 0
}

// optionNames maps the short options of storage nfs to the long ones.
var optionNames = map[string]string{"-H": "host", "-s": "share", "-v": "volume-name", "-c": "connections", "-r": "readonly"}

// parseOptions parses -H X, --host X and --host=X. The keys of the result are long names.
func parseOptions(args []string) (map[string]string, error) {
	opts := map[string]string{}
	for i := 0; i < len(args); i++ {
		name, value, found := strings.Cut(args[i], "=")
		long := strings.TrimPrefix(name, "--")
		if short := optionNames[name]; short != "" {
			long = short
		} else if long == name {
			return nil, shellText("Error: Invalid option " + name)
		}
		if !found && long != "readonly" {
			if i++; i >= len(args) {
				return nil, shellText("Error: " + name + " needs a value")
			}
			value = args[i]
		}
		opts[long] = value
	}
	return opts, nil
}

// asHost calls f with the host's HostDatastoreSystem locked, as hostd does for a local command.
func (h *shellHost) asHost(f func(ctx *simulator.Context, s *datastoreSystem) types.BaseMethodFault) types.BaseMethodFault {
	ctx := h.lab.newContext()
	host := ctx.Map.Get(h.ref).(*simulator.HostSystem)
	dss := ctx.Map.Get(*host.ConfigManager.DatastoreSystem).(*simulator.HostDatastoreSystem)
	var fault types.BaseMethodFault
	ctx.WithLock(dss, func() { fault = f(ctx, &datastoreSystem{HostDatastoreSystem: dss, lab: h.lab}) })
	return fault
}

// addNFS mounts an NFS datastore.
func (h *shellHost) addNFS(opts map[string]string) error {
	connections, _ := strconv.Atoi(opts["connections"]) // none is the default
	spec := types.HostNasVolumeSpec{
		RemoteHost: opts["host"], RemotePath: opts["share"], LocalPath: opts["volume-name"],
		AccessMode: "readWrite", Type: "NFS", Connections: int32(connections),
	}
	fault := h.asHost(func(ctx *simulator.Context, s *datastoreSystem) types.BaseMethodFault {
		_, fault := s.createNAS(ctx, types.CreateNasDatastore{Spec: spec})
		return fault
	})
	if fault != nil {
		return shellText(fmt.Sprintf("Unable to complete Sysinfo operation.  Please see the VMkernel log file for more details.: Sysinfo error: %T", fault))
	}
	return nil
}

// removeNFS unmounts an NFS datastore.
func (h *shellHost) removeNFS(opts map[string]string) error {
	name := opts["volume-name"]
	n := h.lab.nasMounts.findMount(h.ref, name)
	if n == nil {
		return shellText("Unknown volume: " + name)
	}
	fault := h.asHost(func(ctx *simulator.Context, _ *datastoreSystem) types.BaseMethodFault {
		return h.lab.removeNAS(ctx, n.ref, h.ref)
	})
	if fault != nil {
		return shellText(fmt.Sprintf("Unable to remove %s: %T", name, fault))
	}
	return nil
}

// listNFS prints the table of mounts.
func (h *shellHost) listNFS(c *shell.Call) {
	const row = "%-20s  %-15s  %-30s  %10s  %7s  %9s\n"
	fmt.Fprintf(c.Out, row, "Volume Name", "Host", "Share", "Accessible", "Mounted", "Read-Only")
	fmt.Fprintf(c.Out, row, dashLine(20), dashLine(15), dashLine(30), dashLine(10), dashLine(7), dashLine(9))
	for _, n := range h.lab.nasMounts.mountsOf(h.ref) {
		fmt.Fprintf(c.Out, row, n.spec.LocalPath, n.spec.RemoteHost, n.spec.RemotePath, strconv.FormatBool(!n.client.Down()), "true", "false")
	}
}

// dashLine returns the line under a heading of n characters.
func dashLine(n int) string { return strings.Repeat("-", n) }
