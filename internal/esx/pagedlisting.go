package esx

import (
	"context"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
)

// rollPage is the number of objects per page, which is about 600 kB.
const rollPage = 500

// eachPage reads properties of all objects of a type, and calls tell for each page. It
// reads the next page while tell runs.
func (s *inventoryReader) eachPage(ctx context.Context, kind string, props []string, tell func([]types.ObjectContent) error) error {
	view, err := s.createView(ctx, kind)
	if err != nil {
		return err
	}
	defer s.destroyView(ctx, view)
	spec := viewSpec(view, map[string][]string{kind: props}, []string{kind})
	return readAhead(ctx, tell, func(ctx context.Context, send func([]types.ObjectContent) error) error {
		return s.readPages(ctx, spec, send)
	})
}

// readAhead runs read in one goroutine and tell in another, so that a page is processed
// while the next one is read. It returns the first error of either. read must return
// after its ctx ended.
func readAhead(ctx context.Context, tell func([]types.ObjectContent) error, read func(context.Context, func([]types.ObjectContent) error) error) error {
	// The channel has no buffer: at most two pages are in memory.
	pages := make(chan []types.ObjectContent) // closed by the reading goroutine
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(pages)
		return read(ctx, func(page []types.ObjectContent) error {
			select {
			case pages <- page:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	g.Go(func() error {
		for page := range pages {
			if err := tell(page); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

// readPages calls send with the objects that a filter selects, page by page. A server
// may return smaller or larger pages than requested.
func (s *inventoryReader) readPages(ctx context.Context, spec types.PropertyFilterSpec, send func([]types.ObjectContent) error) error {
	collector := s.vim.ServiceContent.PropertyCollector
	res, err := methods.RetrievePropertiesEx(ctx, s, &types.RetrievePropertiesEx{
		This: collector, SpecSet: []types.PropertyFilterSpec{spec}, Options: types.RetrieveOptions{MaxObjects: rollPage},
	})
	if err != nil || res.Returnval == nil {
		return classify(err)
	}
	for page := *res.Returnval; ; {
		if err := send(page.Objects); err != nil {
			return err
		}
		if page.Token == "" {
			return nil
		}
		next, err := methods.ContinueRetrievePropertiesEx(ctx, s, &types.ContinueRetrievePropertiesEx{This: collector, Token: page.Token})
		if err != nil {
			return pageError(err)
		}
		page = next.Returnval
	}
}

// pageError maps the error of a request for the next page. A new session does not know
// the pages of the old one. The caller must then read the list again, so the error is
// fault.Transient.
func pageError(err error) error {
	switch vimFault(err).(type) {
	case types.BaseInvalidArgument, *types.InvalidPropertyFault, *types.InvalidProperty:
		return fault.New(fault.Transient, "the server lost the rest of its answer: %w", err).WithHint("try again")
	}
	return classify(err)
}
