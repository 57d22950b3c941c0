package nfs

import (
	"context"
	"errors"
	"net"
	"path"
	"strings"
	"sync"

	"github.com/decamp/decamp/internal/behind"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs/oncrpc"
)

// Calls that are remembered. The two kinds do not share a cache: the thousands of WRITEs a
// second would push the few others out.
const (
	rememberedCalls  = 4096
	rememberedWrites = 8192
)

// maxRecord is the longest call: a WRITE with its header, handle and credentials.
const maxRecord = maxTransfer + 4<<10

// Server is an NFSv3 and MOUNT v3 server.
type Server struct {
	opts    Options
	root    bool // the server may change the owner of a file
	exports []*export
	byID    map[uint64]*export
	files   *files
	plain   *behind.Pool // payloads of files that are themselves
	spare   *behind.Pool // of payloads whose own memory is used up
	once    *oncrpc.Cache
	writes  *oncrpc.Cache

	shortage shortage
	mountd   *mountd

	rpc *oncrpc.Server

	ctx     context.Context // ended by Close
	cancel  context.CancelFunc
	serving sync.WaitGroup
}

// New opens the exports. It starts nothing; see Serve.
func New(o Options) (*Server, error) {
	o = o.withDefaults()
	s := &Server{
		opts:   o,
		root:   mayChown(),
		byID:   make(map[uint64]*export),
		files:  newFiles(),
		plain:  behind.NewPool(o.PlainMemory),
		spare:  behind.NewPool(spareMemory + spareMemory/3), // a quarter is for writing behind, and never made
		once:   oncrpc.NewCache(rememberedCalls),
		writes: oncrpc.NewCache(rememberedWrites),
	}
	for _, e := range o.Exports {
		if err := s.open(e); err != nil {
			return nil, errors.Join(err, s.shut())
		}
	}
	if len(s.exports) == 0 {
		return nil, fault.New(fault.Invalid, "an NFS server without an export").WithHint("name a folder to export")
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.rpc = oncrpc.NewServer(oncrpc.Options{
		Programs: s.programs(), Admit: o.Admit, MaxRecord: maxRecord, Log: o.Log,
	})
	return s, nil
}

func (s *Server) open(e Export) error {
	x, err := openExport(e)
	if err != nil {
		return err
	}
	if s.byID[x.id] != nil {
		x.close()
		return fault.New(fault.Invalid, "two exports are called %s", e.Path).WithHint("give each its own path")
	}
	x.fileID = fileExportID(x.Path, s.opts.Boot)
	s.byID[x.id], s.byID[x.fileID] = x, x
	s.exports = append(s.exports, x)
	return nil
}

func (s *Server) programs() []*oncrpc.Program {
	procedures := s.procedures()
	s.mountd = &mountd{server: s}
	return []*oncrpc.Program{
		{
			Number: nfsProgram, Name: "nfs", Low: nfsVersion, High: nfsVersion,
			Procedure: func(_, n uint32) *oncrpc.Procedure { return at(procedures, n) },
		},
		s.mountd.program(),
	}
}

// Serve answers NFS and MOUNT on a listener until Close or the end of ctx, and returns nil
// then. It closes the listener. It may be called for several listeners.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.serving.Add(1)
	defer s.serving.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	return s.rpc.Serve(ctx, l)
}

// Forget makes the server ask Export.Open again for the file of that name, relative to the
// export, and closes what it has open of it. A handle of a file that was moved out of the
// export is stale from then on: call it after that.
func (s *Server) Forget(export, name string) error {
	x := s.byID[exportID(export)]
	if x == nil {
		return fault.New(fault.NotFound, "there is no export %s", export)
	}
	name = strings.Trim(path.Clean("/"+name), "/")
	var errs []error
	for _, n := range x.named(name) {
		errs = append(errs, s.files.forget(n))
	}
	return errors.Join(errs...)
}

// named returns the files that were last seen under a name.
func (x *export) named(name string) []*node {
	x.mu.RLock()
	var like []*node
	for _, n := range x.nodes {
		if n.name == path.Base(name) {
			like = append(like, n)
		}
	}
	x.mu.RUnlock()
	var found []*node
	for _, n := range like {
		if x.pathOf(n) == name {
			found = append(found, n)
		}
	}
	return found
}

// Verifier returns the write verifier.
func (s *Server) Verifier() uint64 { return s.opts.Verifier }

// Close ends all connections, waits for the calls in work, and closes every Content. It
// commits nothing: that is for those who gave the Contents.
func (s *Server) Close() error {
	s.cancel()
	s.serving.Wait()
	return s.shut()
}

func (s *Server) shut() error {
	err := s.files.close()
	for _, x := range s.exports {
		x.close()
	}
	return err
}
