// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// folder is one that the command line names. What is below it may be somebody else's: nothing there leads out of it, and no
// link is followed.
type folder struct {
	path string
	root *os.Root
}

// openFolder opens a folder, by a link too.
func openFolder(path string) (*folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &folder{path: path, root: root}, nil
}

func (f *folder) close() { _ = f.root.Close() }

// walkFiles gives do what is below the folder and is no folder, by its name in it. What is behind a link is not looked at.
func (f *folder) walkFiles(do func(name string, mode fs.FileMode) error) error {
	return fs.WalkDir(f.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return do(filepath.FromSlash(name), d.Type())
	})
}

// displayPath returns a file as messages name it.
func (f *folder) displayPath(name string) string { return filepath.Join(f.path, name) }

// checkRegular says what to do about a file that is no regular one.
func (f *folder) checkRegular(name string, mode fs.FileMode) error {
	switch {
	case mode&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link, and none is followed below %s: put the file or the folder itself there, or remove the link", f.displayPath(name), f.path)
	case !mode.IsRegular():
		return fmt.Errorf("%s is no regular file: put one there, or remove it", f.displayPath(name))
	}
	return nil
}

// hasFile says whether a file is there. One that is no regular file is an error, and so is a link on the way to it.
func (f *folder) hasFile(name string) (bool, error) {
	for parent := filepath.Dir(name); parent != "."; parent = filepath.Dir(parent) {
		info, err := f.root.Lstat(parent)
		if err != nil {
			return false, err
		}
		if !info.IsDir() {
			return false, f.checkRegular(parent, info.Mode())
		}
	}
	info, err := f.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.checkRegular(name, info.Mode())
}

// readFile reads a regular file.
func (f *folder) readFile(name string) ([]byte, error) {
	there, err := f.hasFile(name)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, &fs.PathError{Op: "open", Path: f.displayPath(name), Err: fs.ErrNotExist}
	}
	file, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(file)
}

// readDocuments reads those of a regular file.
func (f *folder) readDocuments(name string) ([]*document, error) {
	text, err := f.readFile(name)
	if err != nil {
		return nil, err
	}
	return parseDocuments(f.displayPath(name), text)
}

// writeFile puts a new file in the place of what is there, which is a regular file or nothing.
func (f *folder) writeFile(name string, text []byte) error {
	if _, err := f.hasFile(name); err != nil {
		return err
	}
	made := name + ".new"
	file, err := f.root.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) // it is beside files that others may read
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.displayPath(name), err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.root.Rename(made, name)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.displayPath(name), errors.Join(err, f.root.Remove(made)))
	}
	return nil
}
