"""The loop without any record: the positive control of the kills. To resume is to begin again."""

import driver


def main():
    loop = driver.read_options()

    def run():
        for step in range(loop.steps):
            loop.act(step)

    driver.measure(run)
    driver.tell("no record")


if __name__ == "__main__":
    main()
