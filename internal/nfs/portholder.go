package nfs

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PortOwner returns the process that listens on a TCP port: "decamp (process 123)". addr is a host:port,
// whose host is ignored. It returns "" if the process is another user's, or the kernel's NFS server.
func PortOwner(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return ""
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for _, inode := range listeningInodes(text, uint16(n)) {
			if who := socketOwner(inode); who != "" {
				return who
			}
		}
	}
	return ""
}

// The columns of /proc/net/tcp, from 0, and the state LISTEN (proc_net_tcp in the kernel's
// documentation).
const (
	localColumn = 1 // local address and port in hexadecimal
	stateColumn = 3 // state of the socket in hexadecimal
	inodeColumn = 9 // inode number of the socket

	stateListen = "0A" // TCP_LISTEN
)

// listeningInodes returns the inodes of the sockets that listen on port, from the text of /proc/net/tcp
// or tcp6.
func listeningInodes(table []byte, port uint16) (inodes []string) {
	want := ":" + strings.ToUpper(hex.EncodeToString([]byte{byte(port >> 8), byte(port)}))
	for s := bufio.NewScanner(bytes.NewReader(table)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) > inodeColumn && f[stateColumn] == stateListen && strings.HasSuffix(f[localColumn], want) {
			inodes = append(inodes, f[inodeColumn])
		}
	}
	return inodes
}

// socketOwner returns name and ID of the process that has the socket open; "" if it is not among the
// processes that this one may examine.
func socketOwner(inode string) string {
	socket := "socket:[" + inode + "]"
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*") // fails only for a malformed pattern
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || to != socket {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		name, err := os.ReadFile("/proc/" + pid + "/comm")
		if err != nil {
			return ""
		}
		return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), pid)
	}
	return ""
}
