"""What a prompt may be given as."""

import pytest

from cmdc_runtime.client.arguments import checked_content
from cmdc_runtime.content import File, Image
from cmdc_runtime.errors import InvalidText


@pytest.mark.parametrize("kind", [File, Image])
def test_a_file_by_itself_is_refused_with_the_way_out(kind):
    """It belongs into a list, in which there may be a text too."""
    with pytest.raises(
        InvalidText, match=rf"a list with images and files: give \[cmdc.{kind.__name__}"
    ):
        checked_content(kind("picture.png"), "prompt")
