package shell

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
)

// MountNAS mounts an export on the host, and returns the name of the datastore. If the
// export was mounted before, mounted is false, and the name may differ. It is
// esx.Session.MountNAS for hosts whose licence forbids that call.
func (s *Shell) MountNAS(ctx context.Context, n esx.NAS) (name string, mounted bool, err error) {
	if name, mounted, err = s.mountNAS(ctx, n); err != nil {
		return "", false, fmt.Errorf("mount %s:%s on %s: %w", n.Server, n.Path, s.cfg.Addr, err)
	}
	return name, mounted, nil
}

// mountNAS does the work of MountNAS without the context of errors.
func (s *Shell) mountNAS(ctx context.Context, n esx.NAS) (string, bool, error) {
	list, err := s.listNAS(ctx)
	if err != nil {
		return "", false, err
	}
	for _, have := range list {
		if have.Server == n.Server && have.Path == n.Path {
			return have.Name, false, nil
		}
		if have.Name == n.Name {
			return "", false, fault.New(fault.Conflict, "the host already has a datastore %s", n.Name).
				WithHint("remove it from the host, or use another name")
		}
	}
	out, err := s.Run(ctx, "esxcli", "storage", "nfs", "add", "-H", n.Server, "-s", n.Path, "-v", n.Name)
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		return "", false, fault.New(fault.Unreachable, "%w", err).
			WithHint("check that the host reaches this machine on TCP 111 and 2049 (vmkping, nc -z), and that no firewall of this machine rejects them; see /var/log/vmkernel.log on the host")
	}
	s.cfg.Log.Info("datastore mounted by SSH", "host", s.cfg.Addr, "server", n.Server, "path", n.Path, "datastore", n.Name)
	return n.Name, true, nil
}

// UnmountNAS removes a datastore from the host. It deletes nothing on the server. A
// datastore that does not exist, or has another server or path, is no error.
func (s *Shell) UnmountNAS(ctx context.Context, n esx.NAS) error {
	if err := s.unmountNAS(ctx, n); err != nil {
		return fmt.Errorf("unmount datastore %s of %s: %w", n.Name, s.cfg.Addr, err)
	}
	return nil
}

// unmountNAS does the work of UnmountNAS. A datastore with open files is
// fault.Conflict.
func (s *Shell) unmountNAS(ctx context.Context, n esx.NAS) error {
	there, err := s.hasNAS(ctx, n)
	if err != nil || !there {
		return err
	}
	out, err := s.Run(ctx, "esxcli", "storage", "nfs", "remove", "-v", n.Name)
	if err != nil || out.Status == 0 {
		return err
	}
	// Another process may have unmounted it meanwhile.
	if there, err := s.hasNAS(ctx, n); err != nil || !there {
		return err
	}
	return fault.New(fault.Conflict, "%w", out.Err()).
		WithHint("a process on the host has a file of it open: wait until it ends, or end it, and run the command again")
}

// hasNAS reports whether the host has a datastore with the name, server and path of n.
func (s *Shell) hasNAS(ctx context.Context, n esx.NAS) (bool, error) {
	list, err := s.listNAS(ctx)
	return slices.Contains(list, n), err
}

// listNAS lists the NFS version 3 datastores of the host.
func (s *Shell) listNAS(ctx context.Context) ([]esx.NAS, error) {
	out, err := s.Run(ctx, "esxcli", "storage", "nfs", "list")
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		return nil, err
	}
	return parseNAS(out.Stdout)
}

// parseNAS parses the table of esxcli storage nfs list. Columns are as wide as the
// dashes of the second line, because names may contain blanks. Without datastores the
// output is empty or has only a header.
func parseNAS(text []byte) ([]esx.NAS, error) {
	lines := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	if len(lines) < 2 {
		return nil, nil
	}
	columns := columnsOf(lines[1])
	at := map[string]int{}
	for i, c := range columns {
		at[string(cellAt(lines[0], c))] = i + 1
	}
	// Positions start at 1, so that 0 means a missing column.
	name, server, share := at["Volume Name"], at["Host"], at["Share"]
	if name*server*share == 0 {
		return nil, fault.New(fault.Unsupported, "esxcli storage nfs list begins with %.200q", lines[0]).
			WithHint("run the mount command of decamp land manually on the host, or use --transport https")
	}
	var list []esx.NAS
	for _, line := range lines[2:] {
		list = append(list, esx.NAS{
			Server: string(cellAt(line, columns[server-1])), Path: string(cellAt(line, columns[share-1])), Name: string(cellAt(line, columns[name-1])),
		})
	}
	return list, nil
}

// column is the byte range of a column of the table, without to.
type column struct{ from, to int }

// columnsOf returns the columns of a line of dashes.
func columnsOf(rule []byte) (all []column) {
	for i := 0; i < len(rule); {
		n := len(rule[i:]) - len(bytes.TrimLeft(rule[i:], "-"))
		if n > 0 {
			all = append(all, column{i, i + n})
		}
		i += n + 1
	}
	return all
}

// cellAt returns the text of a line in a column. A short line has empty cells.
func cellAt(line []byte, c column) []byte {
	return bytes.TrimSpace(line[min(c.from, len(line)):min(c.to, len(line))])
}
