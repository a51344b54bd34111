"""The loss-curve gallery: small trainings of the zoo, trained here, kept, and read together.

exhibits.py     which trainings, and the words beside them
cabinet.py      the folder that keeps what was trained
training.py     trains them, one after the other, each in a process of its own
tell_tales.py   where in a curve to look, computed from it
drawing.py      the curves
quiz.py         questions: what is wrong here?
"""
