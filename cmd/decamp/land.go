package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/nfs/filewatch"
)

const landHelp = `
Serve a folder as an NFSv3 datastore that ESXi hosts can mount, without an NFS server.

Writes are acknowledged when they are in the memory of this machine, which is 13 to 24 times
as fast as a sync export. They survive the end of decamp, also by kill: start the same command
again, and hosts continue. They do not survive a crash of the machine. That is acceptable for
copies whose source is kept until they are verified, but not for VMs that run on the
datastore: use --durable for those.

It prints a line for each received file. A file is complete when its host releases the lock
file beside it (.lck-...). When interrupted, decamp writes all data to the medium, and reports
incomplete files and hosts that still have the datastore mounted.

Only hosts of --allow can connect. They may do everything below DIR and nothing outside of it.
Each kind of refused request is reported once.

Files that a host writes as root belong to user 65534 here, as all files of ESXi do. If decamp
does not run as root, they belong to its user. Setuid, setgid and sticky bits are removed.
Links that lead out of DIR are refused. decamp warns if users of this machine can access the
files: set the mode of DIR to 700, and do not allow the addresses of this machine.

ESXi requires a port mapper on port 111: decamp provides it, or registers with the system's
rpcbind. Both require root.
`

const landExamples = `
decamp land --export /srv/land --allow esx1.example.com
decamp land --export /srv/land --allow 10.0.0.0/24 --advertise 10.0.1.5
decamp land --export /srv/land --allow esx1 --json | jq .file.name
`

// landCommand is decamp land.
type landCommand struct {
	out       *output  // output and messages
	export    string   // folder to serve
	allow     []string // hosts that may mount the folder
	advertise string   // address of this machine for hosts; empty: by the route
	listen    string   // address of NFS and MOUNT
	portmap   string   // address of the port mapper, or none
	durable   bool     // acknowledge writes only when they are on the medium
	readOnly  bool     // refuse changes
	keepRoot  bool     // the hosts' root keeps its permissions
}

// newLand returns the command decamp land.
func newLand(p *program) *cobra.Command {
	lc := &landCommand{out: p.out}
	cmd := &cobra.Command{
		Use:     "land",
		Short:   "Serve a folder as a datastore that ESXi writes to",
		Long:    trimHelp(landHelp),
		Example: trimHelp(landExamples),
		Args:    exactArgs(),
		Annotations: exitCodes(
			exit{fault.NotFound, "the folder does not exist, or a host's name has no address"},
			exit{fault.Denied, "no permission to use the ports or the folder"},
			exit{fault.Conflict, "another server uses the ports"}),
		RunE: p.withLog(func(cmd *cobra.Command, _ []string) error {
			switch {
			case lc.export == "":
				return badUsage(cmd, "--export is required: the folder to serve")
			case len(lc.allow) == 0:
				return badUsage(cmd, "--allow is required: the hosts that may mount the folder")
			}
			return lc.runLand(cmd.Context())
		}),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&lc.export, "export", "", "`DIR` to serve")
	f.StringArrayVar(&lc.allow, "allow", nil, "`HOST` that may mount the folder: name, address or network; may be repeated")
	f.StringVar(&lc.advertise, "advertise", "", "`IP` of this machine for hosts (default the address of the route to them)")
	f.StringVar(&lc.listen, "listen", ":2049", "`ADDR` to serve NFS and MOUNT on")
	f.StringVar(&lc.portmap, "portmap", ":111", "`ADDR` of the port mapper; none: no port mapper, which ESXi requires")
	f.BoolVar(&lc.durable, "durable", false, "acknowledge writes only when they are on the medium")
	f.BoolVar(&lc.readOnly, "read-only", false, "refuse changes")
	f.BoolVar(&lc.keepRoot, "no-root-squash", false, "map root of a host to root instead of user 65534")
	_ = cmd.MarkFlagDirname("export") // fails for unknown flags only
	return cmd
}

// runLand serves the folder until ctx ends.
func (lc *landCommand) runLand(ctx context.Context) (err error) {
	dir, err := filepath.Abs(lc.export)
	if err != nil {
		return err
	}
	hosts, err := assemble.LookUp(ctx, "--allow", lc.allow)
	if err != nil {
		return err
	}
	l := &lander{out: lc.out, watch: filewatch.New(dir), warned: map[string]bool{}}
	s, err := nfs.New(nfs.Options{Exports: []nfs.Export{l.exportOf(dir, lc.readOnly)}, Admit: l.newAllowList(hosts), Durable: lc.durable, NoRootSquash: lc.keepRoot, Log: lc.out.log})
	if err != nil {
		return err
	}
	defer joinClose(&err, s.Close)
	ports, err := nfs.Listen(ctx, nfs.Ports{NFS: lc.listen, Portmap: lc.portmap})
	if err != nil {
		return err
	}
	for _, warning := range localAccess(dir, hosts, ownAddresses()) {
		lc.out.warn("%s", warning)
	}
	facts, err := lc.newFacts(dir, hosts, ports.NFS.Addr())
	if err == nil {
		err = printLanding(lc.out, facts)
	}
	if err != nil {
		return errors.Join(err, ports.Close(ctx))
	}
	return l.serveUntilDone(ctx, s, ports, dir)
}

// A lander serves a folder and reports its files. Its methods may be called concurrently.
type lander struct {
	out   *output
	watch *filewatch.Watch // detects when files are complete

	mu     sync.Mutex      // guards warned
	warned map[string]bool // refusals, each once
}

// exportOf returns the export of the folder. It reports each opened file to the watch.
func (l *lander) exportOf(dir string, readOnly bool) nfs.Export {
	e := nfs.Export{Path: dir, Dir: dir, Open: func(name string) (nfs.Content, error) {
		l.watch.Used(name)
		return nil, nil // the file itself
	}}
	if readOnly {
		e.Writable = func(name string) bool {
			l.warnRefused("a change of "+strconv.Quote(name), "the folder is served with --read-only")
			return false
		}
	}
	return e
}

// newAllowList returns the function that accepts the addresses of h. It reports rejected addresses.
func (l *lander) newAllowList(h assemble.Hosts) func(netip.Addr) bool {
	return func(addr netip.Addr) bool {
		if h.Admit(addr) {
			return true
		}
		l.warnRefused("a connection from "+addr.Unmap().String(), "no --allow matches it")
		return false
	}
}

// maxRefusals limits the memory for reported refusals.
const maxRefusals = 1000

// warnRefused reports each refusal once.
func (l *lander) warnRefused(what, why string) {
	l.mu.Lock()
	again := l.warned[what] || len(l.warned) == maxRefusals
	l.warned[what] = true
	l.mu.Unlock()
	if !again {
		l.out.warn("refused %s: %s", what, why)
	}
}

// watchInterval is the time between checks of the files.
const watchInterval = time.Second

// serveUntilDone serves and reports files until ctx ends. Then it syncs the received files.
func (l *lander) serveUntilDone(ctx context.Context, s *nfs.Server, ports *nfs.Listeners, dir string) error {
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, ports) }()
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			l.printChanges(now)
		case err := <-ended:
			l.printChanges(time.Now())
			return errors.Join(err, l.syncAndReport(dir, s.Mounts()))
		}
	}
}

// printChanges prints the files whose state has changed.
func (l *lander) printChanges(now time.Time) {
	for _, f := range l.watch.Poll(now) {
		if l.out.json {
			_ = l.out.printJSON(map[string]filewatch.File{"file": f}) // a reader that went away shows in the end
			continue
		}
		fmt.Fprintln(l.out.screen, landingWords(f))
	}
}

// landingWords returns the progress of a file in one line.
func landingWords(f filewatch.File) string {
	name := printable(f.Name)
	switch f.State {
	case filewatch.Landed:
		return fmt.Sprintf("%s: complete, %s of %s in %s (%s)", name, sizeText(f.Landed), sizeText(f.Size), durationText(f.Elapsed), rateText(f.Landed, f.Elapsed))
	case filewatch.Silent:
		return fmt.Sprintf("%s: no request of its host for %s; %s of %s received", name, filewatch.SilentAfter, sizeText(f.Landed), sizeText(f.Size))
	case filewatch.Removed:
		return fmt.Sprintf("%s: removed before it was complete", name)
	}
	if f.Elapsed == 0 {
		return fmt.Sprintf("%s: started, %s", name, sizeText(f.Size))
	}
	return fmt.Sprintf("%s: %s of %s received, %s", name, sizeText(f.Landed), sizeText(f.Size), rateText(f.Landed, f.Elapsed))
}

// landEnd is the result of a landing.
type landEnd struct {
	Files  int      `json:"files"`  // number of received files
	Bytes  int64    `json:"bytes"`  // bytes of the received files
	Open   []string `json:"open"`   // not complete
	Mounts []string `json:"mounts"` // hosts that did not unmount
}

// syncAndReport writes all data to the medium, and prints the result.
func (l *lander) syncAndReport(dir string, mounts []nfs.Mount) error {
	if err := syncFileSystem(dir); err != nil {
		return fault.New(fault.Internal, "sync %s: %w", dir, err).
			WithHint("compare the received files with their source before use; see dmesg for errors of the disk")
	}
	end := landEnd{Mounts: []string{}}
	end.Files, end.Bytes, end.Open = l.watch.Total()
	for _, m := range mounts {
		if host := m.Host.Unmap().String(); !slices.Contains(end.Mounts, host) {
			end.Mounts = append(end.Mounts, host)
		}
	}
	if l.out.json {
		return l.out.printJSON(map[string]landEnd{"ended": end})
	}
	return end.writeText(l.out)
}

// writeText prints the result as text.
func (e landEnd) writeText(w io.Writer) error {
	var b strings.Builder
	switch e.Files {
	case 0:
		b.WriteString("No file was received.\n")
	case 1:
		fmt.Fprintf(&b, "Received 1 file, %s. It is on the medium.\n", sizeText(e.Bytes))
	default:
		fmt.Fprintf(&b, "Received %d files, %s. They are on the medium.\n", e.Files, sizeText(e.Bytes))
	}
	for _, name := range e.Open {
		fmt.Fprintf(&b, "Incomplete: %s. Its host continues if the same command is started again within 140 s.\n", printable(name))
	}
	for _, host := range e.Mounts {
		fmt.Fprintf(&b, "Host %s still has the datastore mounted. Run there: esxcli storage nfs remove -v decamp\n", host)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// syncFileSystem calls syncfs(2) on the file system of dir: data and names are then on the medium.
func syncFileSystem(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

// landFacts describe how to use the datastore. The JSON form is the output of --json.
type landFacts struct {
	Address  string   `json:"address"`  // address of this machine for hosts
	Port     uint16   `json:"port"`     // port of NFS and MOUNT
	Portmap  bool     `json:"portmap"`  // hosts can ask for the port
	Export   string   `json:"export"`   // folder that hosts mount
	Durable  bool     `json:"durable"`  // writes are acknowledged when they are on the medium
	ReadOnly bool     `json:"readOnly"` // changes are refused
	Commands []string `json:"commands"` // commands for the host
}

// nfsPort is the standard port of NFS. It is unknown whether ESXi supports another port.
const nfsPort = 2049

// newFacts returns the facts about the export dir, served at the address at to the hosts h.
func (lc *landCommand) newFacts(dir string, h assemble.Hosts, at net.Addr) (landFacts, error) {
	port, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return landFacts{}, err
	}
	f := landFacts{
		Address: lc.advertise, Port: port.Port(), Portmap: lc.portmap != nfs.NoPortmap, Export: dir, Durable: lc.durable, ReadOnly: lc.readOnly,
	}
	if f.Address == "" {
		if f.Address, err = addressTowards(h[0].Addr()); err != nil {
			return f, err
		}
	}
	f.Commands = []string{
		"esxcli storage nfs add -H " + f.Address + " -s " + fault.Quote(f.Export) + " -v decamp",
		"vmkfstools -i /vmfs/volumes/DATASTORE/VM/VM.vmdk -d thin /vmfs/volumes/decamp/VM.vmdk",
		"esxcli storage nfs remove -v decamp",
	}
	if lc.readOnly {
		f.Commands[0] += " -r"
		f.Commands = slices.Delete(f.Commands, 1, 2)
	}
	return f, nil
}

// addressTowards returns the address of this machine on the route to host. Nothing is sent: connecting
// a UDP socket only looks up the route.
func addressTowards(host netip.Addr) (string, error) {
	c, err := net.DialTimeout("udp", netip.AddrPortFrom(host, nfsPort).String(), time.Second)
	if err != nil {
		return "", fault.New(fault.Unreachable, "find the route to %s: %w", host, err).
			WithHint("set the address of this machine that the host can reach: --advertise IP")
	}
	defer c.Close() // nothing was sent
	ip, _, err := net.SplitHostPort(c.LocalAddr().String())
	return ip, err
}

// printLanding prints how to use the datastore, with warnings about ports.
func printLanding(out *output, f landFacts) error {
	switch {
	case !f.Portmap:
		out.warn("without a port mapper ESXi cannot mount it; other clients need the port as an option: mount -o vers=3,nolock,port=%d,mountport=%d", f.Port, f.Port)
	case f.Port != nfsPort:
		out.warn("NFS is served on port %d; ESXi is only known to use port %d", f.Port, nfsPort)
	}
	if out.json {
		return out.printJSON(f)
	}
	return f.writeText(out)
}

// writeText prints the facts with the commands for the host.
func (f landFacts) writeText(w io.Writer) error {
	how := "writes are acknowledged when they are in memory"
	switch {
	case f.ReadOnly:
		how = "it is read-only"
	case f.Durable:
		how = "writes are acknowledged when they are on the medium"
	}
	_, err := fmt.Fprintf(w, "%s is served from %s; %s. Press Ctrl-C to stop.\n\nOn the host:\n\n  %s\n\n",
		printable(f.Export), f.Address, how, strings.Join(f.Commands, "\n  "))
	return err
}

// localAccess returns a warning for each way in which other users of this machine reach the files below
// dir: by the folder's permissions, and by mounting it from one of this machine's own addresses.
func localAccess(dir string, h assemble.Hosts, own []netip.Addr) (warnings []string) {
	if mode, ok := openFolder(dir); ok {
		warnings = append(warnings, fmt.Sprintf("other users of this machine can reach the files in %s, whose permissions are %s; to prevent that, run: chmod 700 %s",
			printable(dir), mode, fault.Quote(dir)))
	}
	for _, allowed := range h {
		for _, addr := range own {
			if allowed.Contains(addr) {
				warnings = append(warnings, fmt.Sprintf("any user of this machine can mount %s, because --allow %s includes its address %s; allow only the addresses of the hosts",
					printable(dir), allowed, addr))
				break
			}
		}
	}
	return warnings
}

// openFolder reports whether other users can enter or list a folder, or its group can write to it. A folder
// above that other users cannot enter protects it from them.
func openFolder(dir string) (os.FileMode, bool) {
	const others, otherSearch, groupWrite = 0o007, 0o001, 0o020
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	info, err := os.Stat(dir)
	if err != nil {
		return 0, false
	}
	mode := info.Mode()
	if mode&groupWrite != 0 {
		return mode, true
	}
	if mode&others == 0 {
		return mode, false
	}
	for above := filepath.Dir(dir); ; above = filepath.Dir(above) {
		if info, err := os.Stat(above); err != nil || info.Mode()&otherSearch == 0 {
			return mode, false
		}
		if above == filepath.Dir(above) {
			return mode, true
		}
	}
}

// ownAddresses are the addresses from which a process of this machine may connect to itself.
func ownAddresses() []netip.Addr {
	own := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	list, _ := net.InterfaceAddrs() // without it, only loopback is known
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr().Unmap())
		}
	}
	return own
}
