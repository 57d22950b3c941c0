package nbd

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// runTool runs a program that scripts/setup.sh installs. It returns its output, and whether it succeeded.
func runTool(t testing.TB, name string, args ...string) (output string, ok bool) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("%s: %v: run scripts/setup.sh test", name, err)
	}
	return string(out), err == nil
}

// mustRunTool runs a program that must succeed.
func mustRunTool(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, ok := runTool(t, name, args...)
	if !ok {
		t.Fatalf("%s %q: %s", name, args, out)
	}
	return out
}

// uriOf returns the URI of an export on a socket.
func uriOf(path, name string) string { return "nbd+unix:///" + name + "?socket=" + path }

// toolsServer returns a server with two disks of the same content, one with a bad sector, and an empty writable one.
func toolsServer() (s *Server, data []byte) {
	data = sparseContent(32<<20 + 512)
	bad := &memoryDisk{data: slices.Clone(data), bad: disk.Range{Off: 1 << 20, Len: 512}, err: errBad}
	return &Server{Exports: []Export{
		{Name: "sda", Description: "web01 [ds1] web01/web01.vmdk", Disk: &viewedDisk{memoryDisk: memoryDisk{data: data}}},
		{Name: "plain", Disk: &memoryDisk{data: data}},
		{Name: "bad", Disk: bad},
		{Name: "new", Disk: &writableDisk{memoryDisk: memoryDisk{data: make([]byte, 32<<20)}}},
	}}, data
}

func TestNBDInfo(t *testing.T) {
	s, data := toolsServer()
	path := serveOn(t, s)
	var info struct {
		Protocol   string
		TLS        bool
		Structured bool
		Exports    []struct {
			Name        string   `json:"export-name"`
			Description string   `json:"description"`
			Contexts    []string `json:"contexts"`
			ReadOnly    bool     `json:"is_read_only"`
			MultiConn   bool     `json:"can_multi_conn"`
			DF          bool     `json:"can_df"`
			Flush       bool     `json:"can_flush"`
			Minimum     int64    `json:"block_size_minimum"`
			Preferred   int64    `json:"block_size_preferred"`
			Maximum     int64    `json:"block_size_maximum"`
			Size        int64    `json:"export-size"`
		}
	}
	if err := json.Unmarshal([]byte(mustRunTool(t, "nbdinfo", "--json", "--list", "nbd+unix://?socket="+path)), &info); err != nil {
		t.Fatal(err)
	}
	if info.Protocol != "newstyle-fixed" || info.TLS || !info.Structured || len(info.Exports) != 4 {
		t.Fatalf("nbdinfo reports %+v", info)
	}
	first, last := info.Exports[0], info.Exports[3]
	if first.Name != "sda" || first.Description != "web01 [ds1] web01/web01.vmdk" || !slices.Equal(first.Contexts, []string{contextAllocation}) || first.Size != int64(len(data)) {
		t.Errorf("nbdinfo reports %+v", first)
	}
	if !first.ReadOnly || !first.MultiConn || !first.DF || first.Flush || first.Minimum != 1 || first.Preferred != 4096 || first.Maximum != 16<<20 {
		t.Errorf("nbdinfo reports %+v", first)
	}
	if last.Name != "new" || last.ReadOnly || !last.Flush {
		t.Errorf("nbdinfo reports %+v", last)
	}
	var extents []struct{ Offset, Length, Type int64 }
	if err := json.Unmarshal([]byte(mustRunTool(t, "nbdinfo", "--json", "--map", uriOf(path, "sda"))), &extents); err != nil {
		t.Fatal(err)
	}
	want, _ := s.Exports[0].Disk.Extents(t.Context(), disk.Range{Len: int64(len(data))})
	if len(extents) != len(want) || len(want) < 100 {
		t.Fatalf("%d extents, want %d", len(extents), len(want))
	}
	for i, e := range want {
		if got := extents[i]; got.Offset != e.Off || got.Length != e.Len || got.Type != map[disk.Kind]int64{disk.Zero: 3}[e.Kind] {
			t.Fatalf("extent %d: %+v, want %+v", i, got, e)
		}
	}
	if out, ok := runTool(t, "nbdinfo", uriOf(path, "other")); ok || !strings.Contains(out, "No such file") {
		t.Errorf("nbdinfo of an unknown export: %s", out)
	}
}

// Each tool copies the disk correctly, with one or several connections and with large requests.
func TestCopies(t *testing.T) {
	s, data := toolsServer()
	path := serveOn(t, s)
	for name, copyTo := range map[string]func(to string){
		"nbdcopy":   func(to string) { mustRunTool(t, "nbdcopy", uriOf(path, "sda"), to) },
		"nbdcopy 4": func(to string) { mustRunTool(t, "nbdcopy", "--connections=4", "--threads=4", uriOf(path, "sda"), to) },
		"nbdcopy 32M": func(to string) {
			mustRunTool(t, "nbdcopy", "--request-size=33554432", "--no-extents", uriOf(path, "plain"), to)
		},
		"nbdcopy, synchronous": func(to string) { mustRunTool(t, "nbdcopy", "--synchronous", uriOf(path, ""), to) },
		"qemu-img": func(to string) {
			mustRunTool(t, "qemu-img", "convert", "-f", "raw", "-O", "raw", uriOf(path, "sda"), to)
		},
		"qemu-img 16": func(to string) {
			mustRunTool(t, "qemu-img", "convert", "-m", "16", "-W", "-f", "raw", "-O", "raw", uriOf(path, "plain"), to)
		},
	} {
		to := filepath.Join(t.TempDir(), "image")
		copyTo(to)
		got, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%s: the copy differs", name)
		}
	}
}

func TestQEMUImg(t *testing.T) {
	s, data := toolsServer()
	path := serveOn(t, s)
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := mustRunTool(t, "qemu-img", "info", "--output=json", uriOf(path, "sda")); !strings.Contains(out, fmt.Sprintf(`"virtual-size": %d,`, len(data))) {
		t.Error(out)
	}
	mustRunTool(t, "qemu-img", "compare", "-f", "raw", "-F", "raw", uriOf(path, "sda"), image)
	if _, ok := runTool(t, "qemu-img", "compare", "-f", "raw", "-F", "raw", uriOf(path, "new"), image); ok {
		t.Error("qemu-img compare reports different disks as equal")
	}
	var extents []struct {
		Start, Length int64
		Zero, Data    bool
	}
	if err := json.Unmarshal([]byte(mustRunTool(t, "qemu-img", "map", "-f", "raw", "--output=json", uriOf(path, "sda"))), &extents); err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for _, e := range extents {
		want, _ := s.Exports[0].Disk.Extents(t.Context(), disk.Range{Off: e.Start, Len: e.Length})
		if e.Start != at || e.Zero == e.Data || len(want) != 1 || (want[0].Kind == disk.Zero) != e.Zero {
			t.Fatalf("extent %+v, want %+v", e, want)
		}
		at += e.Length
	}
	if at != int64(len(data)) {
		t.Errorf("the map ends at %d, want %d", at, len(data))
	}
}

// qemu-io reads and writes at unaligned offsets and in large pieces, and receives the errors of the disk. Its writes
// change exactly their ranges.
func TestQEMUIO(t *testing.T) {
	d := &writableDisk{memoryDisk: memoryDisk{data: bytes.Repeat([]byte{7}, 64<<20)}}
	full := &writableDisk{memoryDisk: memoryDisk{data: make([]byte, 1<<20), err: fault.New(fault.Unsupported, "too much")}}
	gone := &writableDisk{memoryDisk: memoryDisk{data: make([]byte, 1<<20), err: errors.New("the disk is gone"), bad: disk.Range{Off: 512, Len: 1}}}
	path := serveOn(t, &Server{Exports: []Export{{Name: "d", Disk: d}, {Name: "full", Disk: full}, {Name: "gone", Disk: gone}, {Name: "kept", Disk: d, ReadOnly: true}}})
	qemuIO := func(name string, commands ...string) string {
		args := []string{"-f", "raw", uriOf(path, name)}
		if name == "kept" {
			args = append(args, "-r")
		}
		for _, c := range commands {
			args = append(args, "-c", c)
		}
		out, _ := runTool(t, "qemu-io", args...)
		return out
	}
	out := qemuIO("d", "read -P 7 0 64M", "write -P 9 1536 4096", "write -P 5 20M 40M", "flush", "read -P 9 1536 4096", "read -P 7 0 1536", "read -P 7 60M 4M")
	if strings.Contains(out, "fail") || strings.Contains(out, "rror") {
		t.Error(out)
	}
	want := bytes.Repeat([]byte{7}, 64<<20)
	copy(want[1536:], bytes.Repeat([]byte{9}, 4096))
	copy(want[20<<20:], bytes.Repeat([]byte{5}, 40<<20))
	if !bytes.Equal(d.content(), want) || d.synced.Load() == 0 {
		t.Error("the disk does not contain the written bytes")
	}
	// A write to a full layer fails with ENOSPC, and the session continues.
	if out := qemuIO("full", "write 0 512", "read -P 0 0 512"); !strings.Contains(out, "No space left") || !strings.Contains(out, "read 512/512") {
		t.Error(out)
	}
	if out := qemuIO("gone", "write 0 512", "read 0 4096", "read -P 0 4096 512"); strings.Count(out, "Input/output error") != 2 || !strings.Contains(out, "read 512/512") {
		t.Error(out)
	}
	if out := qemuIO("kept", "read -P 7 0 1536", "write 0 512"); !strings.Contains(out, "read 1536/1536") || strings.Contains(out, "wrote") {
		t.Error(out)
	}
	if out, ok := runTool(t, "qemu-io", "-f", "raw", uriOf(path, "kept"), "-c", "write 0 512"); ok || !strings.Contains(out, "denied") {
		t.Errorf("a read-only export was opened for writes: %s", out)
	}
}

// fio writes blocks in random order, 16 in flight, and verifies all of them. It reports a changed byte.
func TestFio(t *testing.T) {
	d := &writableDisk{memoryDisk: memoryDisk{data: make([]byte, 16<<20)}}
	path, state := serveOn(t, &Server{Exports: []Export{{Disk: d}}}), t.TempDir()
	fio := func(args ...string) (string, bool) {
		return runTool(t, "../../build/fio", append([]string{
			"--aux-path=" + state, "--name=job", "--ioengine=nbd", "--uri=" + uriOf(path, ""), "--rw=randwrite", "--bsrange=4k-256k", "--iodepth=16", "--size=16m", "--randseed=3", "--verify=crc32c", "--verify_fatal=1",
		}, args...)...)
	}
	if out, ok := fio(); !ok {
		t.Error(out)
	}
	if holes, err := d.Extents(t.Context(), disk.Range{Len: d.Size()}); err != nil || len(holes) != 1 {
		t.Errorf("%d extents after all blocks were written, error %v, want 1", len(holes), err)
	}
	if out, ok := fio("--verify_only"); !ok {
		t.Error(out)
	}
	d.mu.Lock()
	d.data[len(d.data)-1]++
	d.mu.Unlock()
	if out, ok := fio("--verify_only"); ok {
		t.Errorf("fio does not report a changed byte: %s", out)
	}
}

// Requests that the programs of libnbd do not send get correct replies.
func TestNBDSh(t *testing.T) {
	s, _ := toolsServer()
	path := serveOn(t, s)
	out := mustRunTool(t, "/usr/bin/python3", "-m", "nbd", "--base-allocation", "-u", uriOf(path, "bad"), "-c", `
import errno
h.set_strict_mode(0)
def fails(number, f):
    try:
        f()
    except nbd.Error as e:
        assert e.errnum == number, (number, e.errnum, e)
        return
    assert False, "no error"
size = h.get_size()
fails(errno.EINVAL, lambda: h.pread(512, size))
fails(errno.EINVAL, lambda: h.pread(512, size - 511))
fails(errno.EPERM, lambda: h.pwrite(b"x" * 512, 0))
fails(errno.EPERM, lambda: h.flush())
fails(errno.EINVAL, lambda: h.trim(512, 0))
fails(errno.EINVAL, lambda: h.zero(512, 0))
fails(errno.EINVAL, lambda: h.cache(512, 0))
fails(errno.EINVAL, lambda: h.block_status(512, size, lambda *a: 0))
fails(errno.EIO, lambda: h.pread(4096, (1 << 20) - 2048))
assert h.pread(1, size - 1) == h.pread(512, size - 512)[511:]
got = []
def chunk(data, offset, status, error):
    got.append((offset, len(data), status, error.value))
fails(errno.EIO, lambda: h.pread_structured(3 << 20, 0, chunk))
assert got[0] == (0, 1 << 20, nbd.READ_DATA, 0), got
assert got[-1][0] == 1 << 20 and got[-1][2:] == (nbd.READ_ERROR, errno.EIO), got
entries = []
def extent(context, offset, e, error):
    entries.extend(e)
h.block_status(size, 0, extent, nbd.CMD_FLAG_REQ_ONE)
assert len(entries) == 2, entries
buf = nbd.Buffer(1 << 20)
cookies = [h.aio_pread(nbd.Buffer(4096), 4096 * i) for i in range(200)]
while cookies:
    cookies = [c for c in cookies if not h.aio_command_completed(c)]
    if cookies:
        h.poll(-1)
print("end")
`)
	if !strings.HasSuffix(out, "end\n") {
		t.Error(out)
	}
}

// Sixteen concurrent clients read the correct bytes.
func TestParallelConnections(t *testing.T) {
	s, data := toolsServer()
	path := serveOn(t, s)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			c := dialRaw(t, path)
			c.selectExport("sda")
			for at := i << 20; at < len(data); at += 16 << 20 {
				length := min(256<<10, len(data)-at)
				c.send(requestBytes(cmdRead, 0, uint64(at), uint64(at), uint32(length)))
				if k := c.readChunk(); k.kind != chunkData || k.cookie != uint64(at) || !bytes.Equal(k.data[8:], data[at:][:length]) {
					t.Errorf("client %d: wrong reply for the read at %d", i, at)
				}
			}
		})
	}
	all.Wait()
}

// makeCertificates creates a folder with an authority, a server certificate for localhost, and a client
// certificate, with the names that QEMU and libnbd require.
func makeCertificates(t testing.TB) (dir string, config *tls.Config) {
	t.Helper()
	dir = t.TempDir()
	write := func(name, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newKey := func(name string) *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		write(name, "PRIVATE KEY", der)
		return key
	}
	template := func(name string, usage x509.KeyUsage, extended ...x509.ExtKeyUsage) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			KeyUsage: usage, ExtKeyUsage: extended, BasicConstraintsValid: true, IsCA: len(extended) == 0, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
	}
	sign := func(name string, child, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, child, parent, &key.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		write(name, "CERTIFICATE", der)
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	rootKey, serverKey, clientKey := newKey("ca-key.pem"), newKey("server-key.pem"), newKey("client-key.pem")
	root := template("authority", x509.KeyUsageCertSign)
	root = sign("ca-cert.pem", root, root, rootKey, rootKey)
	sign("server-cert.pem", template("localhost", x509.KeyUsageDigitalSignature, x509.ExtKeyUsageServerAuth), root, serverKey, rootKey)
	sign("client-cert.pem", template("client", x509.KeyUsageDigitalSignature, x509.ExtKeyUsageClientAuth), root, clientKey, rootKey)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server-cert.pem"), filepath.Join(dir, "server-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	return dir, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
}

// libnbd and QEMU use TLS with verification of both sides. Clients without TLS or without a certificate are refused.
func TestTLS(t *testing.T) {
	s, data := toolsServer()
	dir, config := makeCertificates(t)
	s.TLS = config
	log := attachLog(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveListener(t, s, l)
	port := l.Addr().(*net.TCPAddr).Port
	secure := fmt.Sprintf("nbds://localhost:%d/sda?tls-certificates=%s", port, dir)
	if out := mustRunTool(t, "nbdinfo", secure); !strings.Contains(out, "protocol: newstyle-fixed with TLS") {
		t.Error(out)
	}
	image := filepath.Join(t.TempDir(), "image")
	mustRunTool(t, "nbdcopy", "--connections=4", "--threads=4", secure, image)
	if got, err := os.ReadFile(image); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the copy differs: %v", err)
	}
	qemuImg := func(folder string) (string, bool) {
		return runTool(t, "qemu-img", "compare", "--object", "tls-creds-x509,id=tls0,endpoint=client,dir="+folder, "--image-opts",
			fmt.Sprintf("driver=nbd,host=localhost,port=%d,export=sda,tls-creds=tls0", port), "driver=raw,file.filename="+image)
	}
	if out, ok := qemuImg(dir); !ok {
		t.Error(out)
	}
	anonymous := t.TempDir()
	if err := os.Link(filepath.Join(dir, "ca-cert.pem"), filepath.Join(anonymous, "ca-cert.pem")); err != nil {
		t.Fatal(err)
	}
	if out, ok := qemuImg(anonymous); ok {
		t.Errorf("a client without a certificate was served: %s", out)
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(log.String(), "didn't provide a certificate"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) { // the server logs after its reply
			t.Fatalf("the missing certificate is not in the log: %s", log)
		}
	}
	if out, ok := runTool(t, "nbdinfo", fmt.Sprintf("nbd://localhost:%d/sda", port)); ok || !strings.Contains(out, "TLS") {
		t.Errorf("a client without TLS was served: %s", out)
	}
	plain, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	c := &rawClient{plain, t}
	c.read(18)
	c.send(be32(fixedNewstyle))
	for _, kind := range []uint32{optList, optInfo, optGo, optStructured, optSetContext, 99} {
		if got := c.sendOption(kind); got[0].kind != repNeedsTLS {
			t.Errorf("option %d: got replies %v, want NEEDS_TLS", kind, got)
		}
	}
	c.send(optionBytes(optStartTLS), optionBytes(optList)) // plain text that would be read after TLS was started
	if !c.isClosed() {
		t.Error("the server continues with plain text")
	}
}

// BenchmarkNBDCopy measures an nbdcopy of a disk in memory. The processor time is that of the server.
func BenchmarkNBDCopy(b *testing.B) {
	const size = 1 << 30
	data := make([]byte, size)
	for i := range size / 512 {
		data[i*512] = 1
	}
	s := &Server{Exports: []Export{{Disk: &viewedDisk{memoryDisk: memoryDisk{data: data}}}}}
	measure := func(b *testing.B, uri string) {
		b.SetBytes(size)
		before := processorTime(b)
		for b.Loop() {
			mustRunTool(b, "nbdcopy", "--no-extents", uri, "null:")
		}
		b.ReportMetric((processorTime(b)-before).Seconds()/float64(b.N), "cpu-s/GiB")
	}
	b.Run("unix", func(b *testing.B) { measure(b, uriOf(serveOn(b, s), "")) })
	b.Run("tls", func(b *testing.B) {
		dir, config := makeCertificates(b)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		serveListener(b, &Server{Exports: s.Exports, TLS: config}, l)
		measure(b, fmt.Sprintf("nbds://localhost:%d/?tls-certificates=%s", l.Addr().(*net.TCPAddr).Port, dir))
	})
}
