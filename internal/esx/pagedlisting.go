package esx

import (
	"context"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
)

// rollPage is how many objects are asked for at a time: some 600 kB.
const rollPage = 500

// eachPage reads properties of all objects of a type, and tells of a page while the next one is on
// its way.
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

// readAhead tells of a page while the next one is read.
func readAhead(ctx context.Context, tell func([]types.ObjectContent) error, read func(context.Context, func([]types.ObjectContent) error) error) error {
	pages := make(chan []types.ObjectContent) // closed by whoever reads
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

// readPages sends what a filter selects, in pages. A server may make them smaller or larger.
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

// pageError is why there is no next page. That of a session that ended is not known to the next
// one: whoever asks for the list again gets all of it.
func pageError(err error) error {
	switch vimFault(err).(type) {
	case types.BaseInvalidArgument, *types.InvalidPropertyFault, *types.InvalidProperty:
		return fault.New(fault.Transient, "the server forgot the rest of its answer: %w", err).WithHint("try again")
	}
	return classify(err)
}
