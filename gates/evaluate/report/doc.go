// Package report prints what package evaluate found: as JSON for programs, as one self-contained HTML page with plots for people, and
// as plain text for terminals.
//
// Start with [Report]: fill in what there is and call WriteJSON, WriteHTML or WriteText.
//
// What it promises: the same report gives the same bytes. JSON field names stay; new ones may come. The page holds everything it
// needs: it runs no script, and its content policy forbids it to fetch anything. It follows the reader's light or dark setting, and
// fits a screen of 390 px. Texts from the data are escaped in the page, and cannot move the cursor of a terminal. What it is not for:
// computing any of the numbers, files, and clocks; the time of the report is handed in as text.
package report
